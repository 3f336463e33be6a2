"""Count the code blocks of the README and of docs/, and the commands in them that tests run or only check.

    python -m benchmarks.documented_commands

Takes a second, and runs none of them.
"""

from collections import Counter

from tests.documentation import NOT_RUN, blocks, find_reason

from benchmarks.reporting import Figure, print_figures


def main() -> None:
    found = list(blocks())
    languages = Counter(block.language for block in found)
    reasons = [
        find_reason(command) for block in found if block.language in ("sh", "console") for command in block.commands
    ]
    not_run = Counter(reason for reason in reasons if reason is not None)
    programs = [find_reason(block.text) for block in found if block.language == "python"]
    counts = {
        "code blocks": len(found),
        "commands that a test runs": reasons.count(None),
        "commands of which only options and names are checked": not_run.total(),
        **{f"only checked, {reason}": not_run[reason] for reason in NOT_RUN.values() if reason in not_run},
        "programs in Python that a test runs": programs.count(None),
        "programs in Python that are only checked": len(programs) - programs.count(None),
    }
    figures = [Figure(name, str(count), "", count) for name, count in counts.items()]
    print_figures("documented_commands", figures, blocks=languages)


if __name__ == "__main__":
    main()

"""Follow the tutorial from a clean clone: run its shell blocks in order, as printed, in one shell, and time them.

    python -m benchmarks.tutorial
    python -m benchmarks.tutorial --installed

As root, on Linux. With `--installed`, the lines that install Dragoman are left out, and the packages of this Python are
used with the source of the clone. The exit code is 1 if a command fails.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.reporting import print_json, print_row

ROOT = Path(__file__).parents[1]
PAGE = Path("docs/tutorial.md")
BLOCK = re.compile(r"^```shell\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALLING = ("make install", "source ")
MARK = "::block"


def shell_blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def main() -> None:
    installed = "--installed" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tutorial-") as folder:
        clone = Path(folder) / "dragoman"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        blocks = shell_blocks(clone / PAGE)
        environment = dict(os.environ)
        if installed:
            lines = [[line for line in block.splitlines() if not line.startswith(INSTALLING)] for block in blocks]
            blocks = ["\n".join(block) + "\n" for block in lines if block]
            environment |= {
                "PYTHONPATH": str(clone / "src"),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            }
        try:
            times, code = run(blocks, clone, environment)
        finally:
            if (clone / "hosts").exists():
                subprocess.run(["examples/two-hosts", "down"], cwd=clone, env=environment, check=False)
    print_row("block", "seconds")
    print_row("---", "---")
    for block, elapsed_s in zip(blocks, times, strict=False):
        print_row(f"`{block.splitlines()[0]}`", f"{elapsed_s:.0f}")
    print_row("all", f"{sum(times):.0f}")
    print_json("tutorial", blocks=len(blocks), completed=len(times), seconds=round(sum(times), 1), exit_code=code)
    sys.exit(1 if code else 0)


def run(blocks: list[str], folder: Path, environment: dict[str, str]) -> tuple[list[float], int]:
    """Run blocks in one shell, which ends at the first command that fails. Returns the times of those completed."""
    script = "".join(f"{block}echo {MARK}\n" for block in blocks)
    process = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    times, started_at_s = [], time.monotonic()
    for line in process.stdout:
        if line.strip() == MARK:
            times.append(time.monotonic() - started_at_s)
            started_at_s = time.monotonic()
        else:
            print(line, end="", file=sys.stderr)
    return times, process.wait()


if __name__ == "__main__":
    main()

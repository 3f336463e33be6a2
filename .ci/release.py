"""Checks of a release, and its notes. `make release-check` runs the checks, and the release workflow both.

python .ci/release.py check        the version in the source is the newest in CHANGELOG.md
python .ci/release.py check v1.2.0 and this tag names it
python .ci/release.py notes        print the newest section of CHANGELOG.md
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECTION = re.compile(
    r"^## \[(?P<name>[^\]]+)\](?: - (?P<day>\S+))?\n(?P<notes>.*?)(?=^## \[|\Z)", re.MULTILINE | re.DOTALL
)
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def main() -> None:
    command, *tags = sys.argv[1:]
    newest = SECTION.search((ROOT / "CHANGELOG.md").read_text())
    if newest is None:
        sys.exit("CHANGELOG.md has no section: write one as `## [1.2.0] - 2026-01-31`.")
    if command == "notes":
        print(newest["notes"].strip())
    else:
        check(newest, *tags)


def check(newest: re.Match[str], tag: str | None = None) -> None:
    found = VERSION.search((ROOT / "src/dragoman/__init__.py").read_text())
    version = found[1] if found else "none"
    if newest["name"] != version:
        sys.exit(
            f"CHANGELOG.md begins with [{newest['name']}], but the version is {version}: name the section "
            f"`## [{version}] - DAY`, or set __version__."
        )
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", newest["day"] or ""):
        sys.exit(f"The section [{version}] of CHANGELOG.md has no day: write `## [{version}] - 2026-01-31`.")
    if tag is not None and tag != f"v{version}":
        sys.exit(f"The tag {tag} does not name the version: use v{version}.")
    print(f"Version {version} of {newest['day']} is ready for release.")


if __name__ == "__main__":
    main()

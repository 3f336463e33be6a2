"""Draws the terminal picture of the README from what the demo printed:

dragoman demo > demo.log && python docs/picture.py demo.log docs/demo.svg
"""

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
HEADING = re.compile(r"(\d\. \w+)(  dragoman .*)")
PROGRESS = re.compile(r"step |Cleaning|Dropping|Counting|Training the|Encoding|Writing|Translating")


def main(log: Path, picture: Path) -> None:
    lines = [line for line in log.read_text().splitlines() if not PROGRESS.match(line)]
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in lines:
            text = Text(line)
            if heading := HEADING.fullmatch(line):
                text = Text.assemble((heading[1], "bold cyan"), (heading[2], "dim"))
            console.print(text)
        drawn = console.export_svg(title="dragoman demo")
    # The picture shall need nothing from elsewhere: fonts are the reader's own.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    picture.write_text(drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Lines of text, split by one rule everywhere: a line ends at a line feed, alone or after a carriage return.

Files are aligned by their line numbers, so all programs that read them must count alike. Everything else that Python
takes for the end of a line is part of the text: a lone carriage return, form feeds, U+0085, U+2028 and others. Python's
own `splitlines`, and files that are open in text mode without `newline="\\n"`, would split there.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import AnyStr


def split_lines(text: AnyStr) -> list[AnyStr]:
    """The lines of a text without their ends. The last one may lack its end."""
    line_feed, carriage_return = ("\n", "\r") if isinstance(text, str) else (b"\n", b"\r")
    lines = text.split(line_feed)
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(carriage_return) for line in lines] if carriage_return in text else lines


def iterate_lines(blocks: Iterable[str]) -> Iterator[str]:
    """The lines of a file that is open with `newline="\\n"`, as they arrive."""
    for block in blocks:
        yield from split_lines(block)


def read_text_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file."""
    return split_lines(path.read_bytes().decode())

"""Lines of text from files and pipes."""

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from dragoman.errors import DragomanError
from dragoman.text_lines import iterate_lines


def open_text(file: str) -> TextIO:
    """Open a file, or standard input for `-`, for `iterate_lines`. Invalid UTF-8 is replaced: no line may be lost."""
    try:
        source = sys.stdin.buffer.fileno() if file == "-" else file
        return open(source, encoding="utf-8", errors="replace", newline="\n", closefd=file != "-")
    except OSError as error:
        raise DragomanError(f"{file} cannot be read ({error.strerror}): check the path.") from None


def read_lines(path: Path) -> list[str]:
    with open_text(str(path)) as file:
        return list(iterate_lines(file))


def available_blocks(lines: Iterable[str], max_lines: int) -> Iterator[list[str]]:
    """Blocks of the lines that are available: many from a file, one from a slow pipe, which is answered at once."""
    available: queue.Queue[str | None] = queue.Queue(2 * max_lines)

    def read() -> None:
        for line in lines:
            available.put(line)
        available.put(None)

    threading.Thread(target=read, daemon=True).start()
    at_end = False
    while not at_end:
        block: list[str] = []
        while not at_end and len(block) < max_lines and (not block or not available.empty()):
            line = available.get()
            if line is None:
                at_end = True
            else:
                block.append(line)
        if block:
            yield block

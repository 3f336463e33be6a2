"""Lines of text from files and pipes."""

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from dragoman.corpus.line_formats import decoded_lines
from dragoman.errors import DragomanError
from dragoman.text_lines import iterate_lines


def lines_of(file: str) -> Iterator[str]:
    """The lines of a file, plain or compressed; or of a pipe, or standard input for `-`, as they arrive."""
    if file != "-" and Path(file).is_file():
        yield from decoded_lines(Path(file))
    else:
        with open_pipe(file) as pipe:
            yield from iterate_lines(pipe)


def open_pipe(file: str) -> TextIO:
    """Open a pipe, or standard input for `-`, for `iterate_lines`. Invalid UTF-8 is replaced: no line may be lost."""
    try:
        source = sys.stdin.buffer.fileno() if file == "-" else file
        return open(source, encoding="utf-8", errors="replace", newline="\n", closefd=file != "-")
    except OSError as error:
        raise DragomanError(f"{file} cannot be read ({error.strerror}): check the path.") from None


def available_blocks(lines: Iterable[str], max_lines: int) -> Iterator[list[str]]:
    """Blocks of the lines that are available: many from a file, one from a slow pipe, which is answered at once.

    An error of the reader is raised after the lines before it.
    """
    available: queue.Queue[str | None] = queue.Queue(2 * max_lines)
    errors: list[Exception] = []

    def read() -> None:
        try:
            for line in lines:
                available.put(line)
        except Exception as error:  # Raised in the consumer, which runs in another thread.
            errors.append(error)
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
    if errors:
        raise errors[0]

"""Readers of event logs that are being written, and thinned, meanwhile."""

from collections.abc import Iterator
from pathlib import Path

from dragoman.log_lines import LogLine, parse_line
from dragoman.log_thinning import find_stage, thin
from dragoman.text_lines import split_lines

BLOCK_BYTES = 4_000_000
"""Part of a log that is read at once."""


class LogFollower:
    """Reads the lines that are added to a log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0
        """End of the lines read so far."""
        self.last_line = b""

    def read_blocks(self) -> Iterator[tuple[bytes, bool]]:
        """The lines since the last call in blocks, and whether a block is the first one of a thinned log.

        A thinned log replaces the one read before, and is read from its beginning. Lines that are added after the call
        are left for the next one, however fast they come.
        """
        end = self._path.stat().st_size if self._path.exists() else self.offset
        while self.offset != end:
            with self._path.open("rb") as file:
                file.seek(self.offset - len(self.last_line))
                is_thinned = file.read(len(self.last_line)) != self.last_line
                if is_thinned:
                    self.offset, self.last_line = file.seek(0), b""
                text = file.read(BLOCK_BYTES)
            text = text[: text.rfind(b"\n") + 1]
            if not text:
                return
            self.offset += len(text)
            self.last_line = text[text.rfind(b"\n", 0, -1) + 1 :]
            yield text, is_thinned
            if self.offset > end:
                return


class ThinningReader:
    """Reads a log, and thins what it has read: its memory is bounded, and it does not matter if the log was thinned."""

    def __init__(self, path: Path) -> None:
        self._follower = LogFollower(path)
        self.lines: list[LogLine] = []
        self._stage = find_stage([])
        self.is_shorter = False
        """True if there are fewer lines than were read."""

    @property
    def offset(self) -> int:
        """End of the lines read so far."""
        return self._follower.offset

    def read_new(self) -> bool:
        """Read the lines added since the last call. False if there are none."""
        found = False
        for text, is_thinned in self._follower.read_blocks():
            found = True
            known = [] if is_thinned else self.lines
            self.lines = known + [parse_line(line) for line in split_lines(text) if line]
            stage = find_stage(self.lines)
            if stage != self._stage:
                count = len(self.lines)
                self.lines, self._stage = thin(self.lines), stage
                self.is_shorter |= len(self.lines) < count
        return found

"""Lines from files and pipes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.decoding.text_input import available_blocks, read_lines
from dragoman.errors import DragomanError


def test_only_line_feeds_end_lines_and_invalid_bytes_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("one\u2028still one\r\ntwo \xff\n\nlast".encode().replace(b"\xc3\xbf", b"\xff"))
    assert read_lines(tmp_path / "text") == ["one\u2028still one", "two \ufffd", "", "last"]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match="check the path"):
        read_lines(tmp_path / "missing")


def test_blocks_hold_all_lines_in_order_and_at_most_their_size() -> None:
    lines = [str(number) for number in range(1000)]
    blocks = list(available_blocks(lines, 64))
    assert [line for block in blocks for line in block] == lines
    assert all(1 <= len(block) <= 64 for block in blocks)
    assert list(available_blocks([], 64)) == []


def test_a_line_from_a_slow_pipe_does_not_wait_for_the_next() -> None:
    answered = threading.Event()

    def slow_lines() -> Iterator[str]:
        yield "first"
        assert answered.wait(timeout=60)
        yield "second"

    blocks = available_blocks(slow_lines(), 64)
    assert next(blocks) == ["first"]
    answered.set()
    assert next(blocks) == ["second"]

"""Lines from files and pipes."""

import bz2
import gzip
import lzma
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from dragoman.decoding.text_input import available_blocks, lines_of
from dragoman.errors import DragomanError
from dragoman.text_lines import split_lines


def test_only_line_feeds_end_lines_and_invalid_bytes_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("one\u2028still one\r\ntwo \xff\n\nlast".encode().replace(b"\xc3\xbf", b"\xff"))
    assert list(lines_of(str(tmp_path / "text"))) == ["one\u2028still one", "two \ufffd", "", "last"]


@pytest.mark.parametrize(
    "compress", [lambda text: text, gzip.compress, lzma.compress, bz2.compress, zstandard.compress]
)
def test_the_lines_of_a_file_do_not_depend_on_its_compression(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "text").write_bytes(compress("eins\nzw\u00f6lf\r\n\nlast".encode()))
    assert list(lines_of(str(tmp_path / "text"))) == ["eins", "zwölf", "", "last"]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match="check the path"):
        list(lines_of(str(tmp_path / "missing")))


def test_blocks_hold_all_lines_in_order_and_at_most_their_size() -> None:
    lines = [str(number) for number in range(1000)]
    blocks = list(available_blocks(lines, 64))
    assert [line for block in blocks for line in block] == lines
    assert all(1 <= len(block) <= 64 for block in blocks)
    assert list(available_blocks([], 64)) == []


def test_an_error_of_the_reader_is_raised_after_the_lines_before_it(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(200_000))
    (tmp_path / "text.gz").write_bytes(gzip.compress(lines.encode())[:-1000])
    blocks = available_blocks(lines_of(str(tmp_path / "text.gz")), 64)
    found: list[str] = []
    with pytest.raises(DragomanError, match="the gzip file is truncated"):
        found.extend(line for block in blocks for line in block)
    assert found
    assert found == split_lines(lines)[: len(found)]


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

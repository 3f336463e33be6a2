"""The texts of the benchmark of back-translation."""

import lzma
from pathlib import Path

import pytest
from benchmarks.back_translation import take

from dragoman.errors import DragomanError

TEXT = "".join(f"line {number}\n" for number in range(200_000)).encode()


@pytest.mark.parametrize("compress", [bytes, lzma.compress])
def test_lines_are_taken_from_plain_and_compressed_files(tmp_path: Path, compress) -> None:
    (tmp_path / "text").write_bytes(compress(TEXT))
    taken = take(tmp_path / "text", tmp_path / "taken", 3, 2)
    assert taken.read_bytes() == b"line 3\nline 4\n"


def test_lines_that_were_not_taken_to_the_end_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(lzma.compress(TEXT)[:-100])
    with pytest.raises(DragomanError, match="truncated"):
        take(tmp_path / "text", tmp_path / "taken", 0, 200_000)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]

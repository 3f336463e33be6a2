"""Texts as shards."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.progress_callback import no_progress
from dragoman.synthesis.text_shards import check_texts, count_shards, read_shards, summarize_texts

TEXT_LINES = st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"])), max_size=30)


@given(TEXT_LINES, TEXT_LINES, st.integers(1, 8))
def test_shards_hold_every_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], size: int
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    paths = [folder / "first", folder / "second"]
    for path, lines in zip(paths, (first, second), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    shards = list(read_shards(paths, size, ()))
    assert [line for shard in shards for line in shard.lines] == first + second
    assert [shard.first_line for shard in shards] == [size * shard.number for shard in shards]
    assert len(shards) == count_shards(len(first + second), size)


def test_finished_shards_are_skipped(text: Path) -> None:
    every = list(read_shards([text], 7, ()))
    assert list(read_shards([text], 7, {0, 3})) == [shard for shard in every if shard.number not in (0, 3)]


def test_a_compressed_text_is_the_same_text(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "text.en.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    assert list(read_shards([packed], 9, ())) == list(read_shards([text], 9, ()))
    plain, other = summarize_texts([text, packed], no_progress)
    assert (plain.lines, plain.sha256) == (other.lines, other.sha256)


def test_invalid_bytes_are_replaced_and_lose_no_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\n\xff\xfe two\nthree")
    [shard] = read_shards([tmp_path / "text"], 9, ())
    assert shard.lines == ("one", "\ufffd\ufffd two", "three")


def test_texts_that_cannot_be_read_again_are_refused(text: Path) -> None:
    with pytest.raises(DragomanError, match="Standard input cannot be read again"):
        check_texts([text, Path("-")])
    with pytest.raises(DragomanError, match="no file missing and no file gone"):
        check_texts([Path("missing"), text, Path("gone")])


def test_a_text_without_lines_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DragomanError, match="empty has no lines"):
        summarize_texts([tmp_path / "empty"], no_progress)

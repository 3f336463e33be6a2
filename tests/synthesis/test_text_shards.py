"""Texts as shards."""

import gzip
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.progress_callback import no_progress
from dragoman.synthesis import text_shards
from dragoman.synthesis.text_shards import check_texts, count_shards, read_shards, scan_texts

TEXT_LINES = st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"])), max_size=30)


@given(TEXT_LINES, TEXT_LINES, st.integers(1, 8))
def test_shards_hold_every_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], size: int
) -> None:
    first = ["A line.", *first]  # There is always one.
    folder = tmp_path_factory.mktemp("texts")
    paths = [folder / "first", folder / "second"]
    for path, lines in zip(paths, (first, second), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    shards = list(read_shards(scan_texts(paths, no_progress), size, ()))
    assert [line for shard in shards for line in shard.lines] == first + second
    assert [shard.first_line for shard in shards] == [size * shard.number for shard in shards]
    assert len(shards) == count_shards(len(first + second), size)


@given(
    st.lists(st.sampled_from("abc"), min_size=1), st.lists(st.sampled_from("abc")), st.integers(1, 4), st.integers(1, 3)
)
def test_a_text_that_changes_between_both_readings_is_an_error_before_its_first_other_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], others: list[str], size: int, block_lines: int
) -> None:
    path = tmp_path_factory.mktemp("texts") / "text"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_shards, "_BLOCK_LINES", block_lines)
        path.write_text("".join(f"{line}\n" for line in lines))
        texts = scan_texts([path], no_progress)
        path.write_text("".join(f"{line}\n" for line in others))
        read: list[str] = []
        refused = pytest.raises(DragomanError, match="text has changed") if lines != others else nullcontext()
        with refused:
            for shard in read_shards(texts, size, ()):
                read += shard.lines
        assert read == lines[: len(read)] == others[: len(read)]
        assert lines != others or read == lines


def test_finished_shards_are_skipped(text: Path) -> None:
    texts = scan_texts([text], no_progress)
    every = list(read_shards(texts, 7, ()))
    assert list(read_shards(texts, 7, {0, 3})) == [shard for shard in every if shard.number not in (0, 3)]


def test_a_compressed_text_is_the_same_text(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "text.en.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    plain, other = scan_texts([text, packed], no_progress)
    assert list(read_shards([other], 9, ())) == list(read_shards([plain], 9, ()))
    assert (plain.summary.lines, plain.summary.sha256) == (other.summary.lines, other.summary.sha256)


def test_invalid_bytes_are_replaced_and_lose_no_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\n\xff\xfe two\nthree")
    [shard] = read_shards(scan_texts([tmp_path / "text"], no_progress), 9, ())
    assert shard.lines == ("one", "\ufffd\ufffd two", "three")


def test_texts_that_cannot_be_read_again_are_refused(text: Path) -> None:
    with pytest.raises(DragomanError, match="Standard input cannot be read again"):
        check_texts([text, Path("-")])
    with pytest.raises(DragomanError, match="no file missing and no file gone"):
        check_texts([Path("missing"), text, Path("gone")])


@pytest.mark.parametrize("content", ["", "\n", "\n \n\t\n", "\u200b\n\x00\n"])
def test_a_text_without_a_line_that_can_be_translated_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "empty").write_text(content)
    with pytest.raises(DragomanError, match="empty has no line that can be translated"):
        scan_texts([tmp_path / "empty"], no_progress)

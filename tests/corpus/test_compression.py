"""Opening files whatever they are packed in."""

import bz2
import gzip
import io
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dragoman.corpus.compression import BLOCK_BYTES, ArchiveError, compression_of, read_blocks, read_whole
from dragoman.errors import CorpusError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXT = b"".join(b"line %d of a text\n" % number for number in range(60_000))


def unpack(path: Path) -> bytes:
    return b"".join(read_blocks(path))


def unpack_into(got: bytearray, path: Path) -> None:
    """Keeps what comes before an error."""
    for block in read_blocks(path):
        got += block


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "name-tells-nothing.txt"


@pytest.mark.parametrize("kind", PACKERS)
def test_unpacks_by_magic_bytes_whatever_the_name(kind: str, file: Path) -> None:
    file.write_bytes(PACKERS[kind](TEXT))
    assert compression_of(file.read_bytes()) == kind
    assert unpack(file) == TEXT


@pytest.mark.parametrize("kind", PACKERS)
def test_concatenated_archives_are_one_text(kind: str, file: Path) -> None:
    file.write_bytes(b"".join(map(PACKERS[kind], [b"one\n", b"", TEXT, b"two\n"])))
    assert unpack(file) == b"one\n" + TEXT + b"two\n"


@pytest.mark.parametrize("kind", ["gzip", "xz"])
def test_zeros_after_and_between_archives_are_padding(kind: str, file: Path) -> None:
    file.write_bytes(PACKERS[kind](b"one\n") + bytes(512) + PACKERS[kind](b"two\n") + bytes(BLOCK_BYTES * 2))
    assert unpack(file) == b"one\ntwo\n"


def test_zstd_with_a_skippable_frame_first(file: Path) -> None:
    file.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + PACKERS["zstd"](TEXT))
    assert unpack(file) == TEXT


@pytest.mark.parametrize("kind", PACKERS)
def test_what_does_not_compress_comes_back_too(kind: str, file: Path) -> None:
    noise = random.Random(1).randbytes(3 * BLOCK_BYTES + 17)
    file.write_bytes(PACKERS[kind](noise))
    assert unpack(file) == noise


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_comes_in_small_blocks(kind: str, file: Path) -> None:
    file.write_bytes(PACKERS[kind](bytes(40 << 20)))
    sizes = [len(block) for block in read_blocks(file)]
    assert sum(sizes) == 40 << 20
    assert max(sizes) <= 33 << 20  # zstd's worst; the others stop at a block
    if kind != "zstd":
        assert max(sizes) <= 2 * BLOCK_BYTES


@pytest.mark.parametrize("kind", PACKERS)
def test_an_archive_that_is_cut_off_gives_its_beginning_and_then_an_error(kind: str, file: Path) -> None:
    noise = random.Random(2).randbytes(3 << 20)
    packed = PACKERS[kind](noise)
    file.write_bytes(packed[: len(packed) * 3 // 4])
    got = bytearray()
    with pytest.raises(ArchiveError, match=f"the {kind} archive is cut off.*fetch it again") as caught:
        unpack_into(got, file)
    assert caught.value.path == file
    assert len(got) > 1 << 20
    assert noise.startswith(got)


@pytest.mark.parametrize("kind", PACKERS)
def test_an_archive_with_a_flipped_byte_is_damaged(kind: str, file: Path) -> None:
    packed = bytearray(PACKERS[kind](random.Random(3).randbytes(300_000)))
    packed[len(packed) // 2] ^= 0xFF
    file.write_bytes(packed)
    with pytest.raises(ArchiveError, match=f"the {kind} archive is damaged"):
        unpack(file)


@pytest.mark.parametrize("kind", PACKERS)
def test_something_else_after_an_archive_is_damage(kind: str, file: Path) -> None:
    file.write_bytes(PACKERS[kind](b"one\n") + b"this was not packed, but lay there\n")
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(file)


@pytest.mark.parametrize("head", [b"", b"B", b"BZh is how this sentence begins", b"\x1f", b"plain", b"\xfd7z", b"P*"])
def test_text_is_not_taken_for_an_archive(head: bytes, file: Path) -> None:
    file.write_bytes(head)
    assert compression_of(head) is None
    assert unpack(file) == head


def test_standard_input_is_unpacked_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT)))
    monkeypatch.setattr(sys, "stdin", stream)
    assert unpack(Path("-")) == TEXT
    assert not stream.closed


def test_a_folder_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read") as caught:
        unpack(tmp_path)
    assert caught.value.path == tmp_path


def test_a_file_that_must_be_held_whole_may_not_be_huge(file: Path) -> None:
    file.write_bytes(gzip.compress(bytes(3 << 20)))
    with pytest.raises(CorpusError, match="larger than 2 MiB"):
        read_whole(file, 2 << 20)

"""Reading compressed files."""

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

from dragoman.corpus.compression import BLOCK_BYTES, CompressedFileError, detect_compression, read_blocks, read_whole
from dragoman.errors import CorpusError

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXT = b"".join(b"line %d of a text\n" % number for number in range(60_000))


def decompress(path: Path) -> bytes:
    return b"".join(read_blocks(path))


def decompress_into(got: bytearray, path: Path) -> None:
    """Keep the bytes before an error."""
    for block in read_blocks(path):
        got += block


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "no-compression-suffix.txt"


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compression_is_detected_by_the_first_bytes_not_the_name(kind: str, file: Path) -> None:
    file.write_bytes(COMPRESSORS[kind](TEXT))
    assert detect_compression(file.read_bytes()) == kind
    assert decompress(file) == TEXT


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_concatenated_files_are_one_text(kind: str, file: Path) -> None:
    file.write_bytes(b"".join(map(COMPRESSORS[kind], [b"one\n", b"", TEXT, b"two\n"])))
    assert decompress(file) == b"one\n" + TEXT + b"two\n"


@pytest.mark.parametrize("kind", ["gzip", "xz"])
def test_zeros_between_and_after_members_are_padding(kind: str, file: Path) -> None:
    file.write_bytes(COMPRESSORS[kind](b"one\n") + bytes(512) + COMPRESSORS[kind](b"two\n") + bytes(BLOCK_BYTES * 2))
    assert decompress(file) == b"one\ntwo\n"


def test_zstd_may_begin_with_a_skippable_frame(file: Path) -> None:
    file.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + COMPRESSORS["zstd"](TEXT))
    assert decompress(file) == TEXT


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_incompressible_data_is_read(kind: str, file: Path) -> None:
    noise = random.Random(1).randbytes(3 * BLOCK_BYTES + 17)
    file.write_bytes(COMPRESSORS[kind](noise))
    assert decompress(file) == noise


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_highly_compressed_data_is_read_in_small_blocks(kind: str, file: Path) -> None:
    file.write_bytes(COMPRESSORS[kind](bytes(40 << 20)))
    sizes = [len(block) for block in read_blocks(file)]
    assert sum(sizes) == 40 << 20
    assert max(sizes) <= 33 << 20  # The worst case of zstd.
    if kind != "zstd":
        assert max(sizes) <= 2 * BLOCK_BYTES


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_truncated_file_gives_its_beginning_and_then_an_error(kind: str, file: Path) -> None:
    noise = random.Random(2).randbytes(3 << 20)
    compressed = COMPRESSORS[kind](noise)
    file.write_bytes(compressed[: len(compressed) * 3 // 4])
    got = bytearray()
    with pytest.raises(CompressedFileError, match=f"the {kind} file is truncated.*download it again") as caught:
        decompress_into(got, file)
    assert caught.value.path == file
    assert len(got) > 1 << 20
    assert noise.startswith(got)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_file_with_a_flipped_byte_is_damaged(kind: str, file: Path) -> None:
    compressed = bytearray(COMPRESSORS[kind](random.Random(3).randbytes(300_000)))
    compressed[len(compressed) // 2] ^= 0xFF
    file.write_bytes(compressed)
    with pytest.raises(CompressedFileError, match=f"the {kind} file is damaged"):
        decompress(file)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_other_data_after_a_compressed_file_is_damage(kind: str, file: Path) -> None:
    file.write_bytes(COMPRESSORS[kind](b"one\n") + b"this is not compressed\n")
    with pytest.raises(CompressedFileError, match="damaged"):
        decompress(file)


@pytest.mark.parametrize("head", [b"", b"B", b"BZh is how this sentence begins", b"\x1f", b"plain", b"\xfd7z", b"P*"])
def test_plain_text_is_not_taken_for_compressed(head: bytes, file: Path) -> None:
    file.write_bytes(head)
    assert detect_compression(head) is None
    assert decompress(file) == head


def test_standard_input_is_decompressed_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT)))
    monkeypatch.setattr(sys, "stdin", stream)
    assert decompress(Path("-")) == TEXT
    assert not stream.closed


def test_a_folder_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read") as caught:
        decompress(tmp_path)
    assert caught.value.path == tmp_path


def test_a_file_that_is_read_into_memory_must_not_be_too_large(file: Path) -> None:
    file.write_bytes(gzip.compress(bytes(3 << 20)))
    with pytest.raises(CorpusError, match="larger than 2 MiB"):
        read_whole(file, 2 << 20)

"""Files as blocks of decompressed bytes. The first bytes decide the compression, since file names are often wrong."""

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from dragoman.corpus.source_arguments import STANDARD_INPUT
from dragoman.errors import CorpusError

BLOCK_BYTES = 1 << 18
"""Large enough that the overhead per block is negligible, small enough for the CPU cache."""


# A zstd block of 4 bytes can expand to 128 KiB, and the decoder has no output limit: so input chunks are small.
_ZSTD_INPUT_BYTES = 1024
# liblzma allocates the dictionary that a header asks for, up to 4 GiB; `xz -9` asks for 65 MiB.
_XZ_MEMORY_BYTES = 1 << 30


class CompressedFileError(CorpusError):
    """A compressed file that is truncated or damaged."""

    def __init__(self, compression: str, truncated: bool, path: Path, line: int | None = None) -> None:
        state = "truncated" if truncated else "damaged"
        where = "" if line is None else " after this line"
        super().__init__(
            f"the {compression} file is {state}{where}: download it again, or compress it again from the original",
            path,
            line,
        )
        self.compression = compression
        self.truncated = truncated
        self.file = path

    def after_line(self, line: int) -> "CompressedFileError":
        """The same error, with the last complete line that could be read."""
        return CompressedFileError(self.compression, self.truncated, self.file, line or None)


class _Decompressor(Protocol):
    """The interface of the `bz2` and `lzma` decompressors; gzip and zstd are adapted to it."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _GzipDecompressor:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self._output_was_full = False

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail and not self._output_was_full

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        output = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self._output_was_full = len(output) == max_length
        return output


class _ZstdDecompressor:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._pending = b""

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        unused: bytes = self._frame.unused_data
        return unused + self._pending

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        compressed = self._pending + data
        chunks: list[bytes] = []
        begin = length = 0
        while begin < len(compressed) and length < max_length and not self.eof:
            chunks.append(self._frame.decompress(compressed[begin : begin + _ZSTD_INPUT_BYTES]))
            begin += _ZSTD_INPUT_BYTES
            length += len(chunks[-1])
        self._pending = compressed[begin:]
        return b"".join(chunks)


def _xz_decompressor() -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": _GzipDecompressor,
    "xz": _xz_decompressor,
    "bzip2": bz2.BZ2Decompressor,
    "zstd": _ZstdDecompressor,
}
_DECOMPRESSION_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError, zstandard.ZstdError)


def detect_compression(head: bytes) -> str | None:
    """The compression that a file's first bytes announce, or None for plain text."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head[:3] == b"BZh" and head[3:4] in b"123456789" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    # A skippable frame may come first: parallel compressors write one.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return "zstd"
    return None


def read_blocks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file, or of standard input for `-`, in blocks of about BLOCK_BYTES."""
    try:
        with _open(path) as file:
            head = file.read(BLOCK_BYTES)
            compression = detect_compression(head)
            yield from _plain_blocks(head, file) if compression is None else _blocks(compression, head, file, path)
    except OSError as error:
        raise CorpusError(
            f"cannot be read ({error.strerror or error}): check the path and its permissions", path
        ) from error


def read_whole(path: Path, limit_bytes: int) -> bytes:
    """The complete content of a small file, for formats that cannot be streamed."""
    content = bytearray()
    for block in read_blocks(path):
        content += block
        if len(content) > limit_bytes:
            raise CorpusError(
                f"is larger than {limit_bytes >> 20} MiB, the limit for this format because it is read into memory: "
                "split it, or convert it to TSV",
                path,
            )
    return bytes(content)


def _open(path: Path) -> "BinaryIO | nullcontext[BinaryIO]":
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)  # Standard input stays open.
    return path.open("rb")


def _plain_blocks(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    block = head
    while block:
        yield block
        block = file.read(BLOCK_BYTES)


def _blocks(compression: str, head: bytes, file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Decompressed chunks joined into blocks; the bytes before an error are still yielded."""
    chunks: list[bytes] = []
    length = 0
    try:
        for chunk in _decompress(compression, head, file, path):
            chunks.append(chunk)
            length += len(chunk)
            if length >= BLOCK_BYTES:
                yield b"".join(chunks)
                chunks, length = [], 0
    except CompressedFileError:
        if length:
            yield b"".join(chunks)
        raise
    if length:
        yield b"".join(chunks)


def _decompress(compression: str, compressed: bytes, file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Decompress all members in order: compressed files may be concatenated."""
    while compressed:
        decompressor = _DECOMPRESSORS[compression]()
        while not decompressor.eof:
            if not compressed and decompressor.needs_input:
                compressed = file.read(BLOCK_BYTES)
                if not compressed:
                    raise CompressedFileError(compression, True, path)
            try:
                chunk = decompressor.decompress(compressed, max_length=BLOCK_BYTES)
            except _DECOMPRESSION_ERRORS:
                raise CompressedFileError(compression, False, path) from None
            compressed = b""
            yield chunk
        # Files from tapes and block devices are padded with zeros.
        compressed = decompressor.unused_data.lstrip(b"\0")
        while not compressed and (more := file.read(BLOCK_BYTES)):
            compressed = more.lstrip(b"\0")

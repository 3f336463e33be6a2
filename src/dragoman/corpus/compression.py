"""Files as blocks of bytes, whatever they are packed in: the first bytes tell, since names are often wrong."""

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
"""Enough to make the cost per block vanish, little enough to stay in the processor's cache."""


# A zstd block of 4 bytes can stand for 128 KiB, and the decoder cannot be told when to stop: so it is fed in sips.
_ZSTD_SIP_BYTES = 1024
# liblzma allocates the dictionary that a header asks for, up to 4 GiB; `xz -9` asks for 65 MiB.
_XZ_MEMORY_BYTES = 1 << 30


class ArchiveError(CorpusError):
    """A compressed file that cannot be unpacked to its end."""

    def __init__(self, kind: str, cut_off: bool, path: Path, line: int | None = None) -> None:
        state = "cut off" if cut_off else "damaged"
        where = "" if line is None else " after this line"
        super().__init__(
            f"the {kind} archive is {state}{where}: fetch it again, or compress it again from the original", path, line
        )
        self.kind = kind
        self.cut_off = cut_off
        self.file = path

    def after_line(self, line: int) -> "ArchiveError":
        """The same error, with the last whole line that could be read."""
        return ArchiveError(self.kind, self.cut_off, self.file, line or None)


class _Unpacker(Protocol):
    """What the decompressors of `bz2` and `lzma` offer; the other two are brought to the same shape."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _GzipUnpacker:
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
        unpacked = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self._output_was_full = len(unpacked) == max_length
        return unpacked


class _ZstdUnpacker:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        unused: bytes = self._frame.unused_data
        return unused + self._waiting

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        packed = self._waiting + data
        unpacked: list[bytes] = []
        begin = length = 0
        while begin < len(packed) and length < max_length and not self.eof:
            unpacked.append(self._frame.decompress(packed[begin : begin + _ZSTD_SIP_BYTES]))
            begin += _ZSTD_SIP_BYTES
            length += len(unpacked[-1])
        self._waiting = packed[begin:]
        return b"".join(unpacked)


def _xz_unpacker() -> _Unpacker:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)


_UNPACKERS: dict[str, Callable[[], _Unpacker]] = {
    "gzip": _GzipUnpacker,
    "xz": _xz_unpacker,
    "bzip2": bz2.BZ2Decompressor,
    "zstd": _ZstdUnpacker,
}
_DAMAGE = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError, zstandard.ZstdError)


def compression_of(head: bytes) -> str | None:
    """Which compression a file's first bytes announce, or None for plain text."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head[:3] == b"BZh" and head[3:4] in b"123456789" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    # A skippable frame, as parallel compressors write it, may come first.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return "zstd"
    return None


def read_blocks(path: Path) -> Iterator[bytes]:
    """The unpacked bytes of a file, or of standard input for `-`, in blocks of about BLOCK_BYTES."""
    try:
        with _open(path) as file:
            head = file.read(BLOCK_BYTES)
            kind = compression_of(head)
            yield from _plain(head, file) if kind is None else _unpacked(kind, head, file, path)
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror or error}): check the path and its rights", path) from error


def read_whole(path: Path, limit_bytes: int) -> bytes:
    """All of a small file at once, for formats that cannot be streamed."""
    content = bytearray()
    for block in read_blocks(path):
        content += block
        if len(content) > limit_bytes:
            raise CorpusError(
                f"is larger than {limit_bytes >> 20} MiB, which this format must hold in memory: "
                "split it, or convert it to TSV",
                path,
            )
    return bytes(content)


def _open(path: Path) -> "BinaryIO | nullcontext[BinaryIO]":
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)  # not ours to close
    return path.open("rb")


def _plain(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    block = head
    while block:
        yield block
        block = file.read(BLOCK_BYTES)


def _unpacked(kind: str, head: bytes, file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Pieces gathered into blocks; what precedes damage still comes."""
    pieces: list[bytes] = []
    length = 0
    try:
        for piece in _members(kind, head, file, path):
            pieces.append(piece)
            length += len(piece)
            if length >= BLOCK_BYTES:
                yield b"".join(pieces)
                pieces, length = [], 0
    except ArchiveError:
        if length:
            yield b"".join(pieces)
        raise
    if length:
        yield b"".join(pieces)


def _members(kind: str, packed: bytes, file: BinaryIO, path: Path) -> Iterator[bytes]:
    """All members one after the other, since archives may be concatenated."""
    while packed:
        unpacker = _UNPACKERS[kind]()
        while not unpacker.eof:
            if not packed and unpacker.needs_input:
                packed = file.read(BLOCK_BYTES)
                if not packed:
                    raise ArchiveError(kind, True, path)
            try:
                piece = unpacker.decompress(packed, max_length=BLOCK_BYTES)
            except _DAMAGE:
                raise ArchiveError(kind, False, path) from None
            packed = b""
            yield piece
        # Archives on tapes and in aligned blocks are padded with zeros.
        packed = unpacker.unused_data.lstrip(b"\0")
        while not packed and (more := file.read(BLOCK_BYTES)):
            packed = more.lstrip(b"\0")

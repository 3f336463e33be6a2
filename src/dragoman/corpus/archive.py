"""Extract named members of an archive: streamed, with a size limit, all of them or none.

Archives are untrusted. Only the requested members are written, as regular files under checked names, so nothing in an
archive can write outside the folder.
"""

import bz2
import errno
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

import zstandard

from dragoman.corpus.download_cache import VerifiedFile, append_suffix, read_object
from dragoman.errors import CorpusError
from dragoman.files import locked, write_json
from dragoman.progress_callback import Progress, no_progress

MAX_UNPACKED_BYTES = 64 * 2**30
MAX_COMPRESSION_RATIO = 200
"""The limit as a multiple of the archive's size: text compresses by 3 to 5, a zip bomb by 1000."""
MIN_LIMIT_BYTES = 2**24
"""The ratio never limits an archive to less: a small file of equal lines compresses well."""

_ARCHIVE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,  # A compression that zipfile does not support.
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
)


class Readable(Protocol):
    """A binary stream that can be read."""

    def read(self, size: int = -1, /) -> bytes: ...


def unpack(
    archive: VerifiedFile,
    members: Sequence[str],
    folder: Path,
    *,
    progress: Progress = no_progress,
    limit_bytes: int = MAX_UNPACKED_BYTES,
) -> tuple[Path, ...]:
    """Unpack members below `folder`, except those that its stamp file lists, and return their paths in order."""
    names = [_safe_name(member, archive.path) for member in members]
    wanted = {name: folder / name for name in names}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(append_suffix(folder, ".lock")):
        stamp_path = append_suffix(folder, ".stamp.json")
        stamp = read_object(stamp_path)
        sizes = stamp.get("sizes", {}) if stamp.get("archive_sha256") == archive.sha256 else {}
        missing = {name: path for name, path in wanted.items() if not _is_unpacked(path, sizes.get(str(name)))}
        if missing:
            ratio_bytes = max(MIN_LIMIT_BYTES, MAX_COMPRESSION_RATIO * archive.path.stat().st_size)
            sizes |= _extract(missing, _SizeBudget(archive.path, min(limit_bytes, ratio_bytes), progress))
            write_json(stamp_path, {"archive_sha256": archive.sha256, "sizes": sizes})
    return tuple(wanted[name] for name in names)


def _is_unpacked(path: Path, size_bytes: int | None) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes


def _extract(wanted: dict[PurePosixPath, Path], budget: "_SizeBudget") -> dict[str, int]:
    """Write all wanted members, or none, and return their sizes."""
    archive = budget.archive
    temporaries: dict[PurePosixPath, Path] = {}
    seen: list[str] = []
    try:
        try:
            for name, body in _members(wanted.keys(), budget, seen):
                wanted[name].parent.mkdir(parents=True, exist_ok=True)
                temporaries[name] = append_suffix(wanted[name], f".{os.getpid()}.part")
                _write(body, temporaries[name])
        except _ARCHIVE_ERRORS as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise  # A disk error: decompressors set no errno, and EINVAL is zipfile seeking in a damaged archive.
            raise CorpusError(
                f"this archive is truncated, damaged or not an archive ({error}): delete it and download it again",
                archive,
            ) from error
        if missing := [str(name) for name in wanted if name not in temporaries]:
            raise CorpusError(
                f"this archive has no {' and no '.join(missing)}: correct `members`; it contains {_shortened(seen)}",
                archive,
            )
        sizes = {str(name): temporary.stat().st_size for name, temporary in temporaries.items()}
        for name, temporary in temporaries.items():
            temporary.replace(wanted[name])
        return sizes
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _write(body: Readable, path: Path) -> None:
    with path.open("wb") as out:
        while chunk := body.read(2**20):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())


def _members(
    wanted: Set[PurePosixPath], budget: "_SizeBudget", seen: list[str]
) -> Iterator[tuple[PurePosixPath, Readable]]:
    """The wanted members, each of which must be read before the next one; `seen` collects the names of all members."""
    with budget.archive.open("rb") as handle:
        budget.position = handle.tell
        magic = handle.read(6)
        handle.seek(0)
        if magic.startswith(b"PK"):
            yield from _zip_members(handle, wanted, budget, seen)
        else:
            # The limit applies to the decompressed stream, so a skipped member cannot be a zip bomb either.
            stream = _LimitedStream(_open_decompressed(handle, magic), budget)
            yield from _tar_members(stream, wanted, budget.archive, seen)
            while stream.read(2**20):
                pass  # To the end of the stream: gzip and xz store their checksum there.


def _tar_members(
    stream: "_LimitedStream", wanted: Set[PurePosixPath], archive: Path, seen: list[str]
) -> Iterator[tuple[PurePosixPath, Readable]]:
    links: set[PurePosixPath] = set()
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", bufsize=2**18) as tar:
        for info in tar:
            seen.append(info.name)
            name = _safe_name(info.name, archive)
            if info.issym() or info.islnk():
                links.add(name)
            if name not in wanted:
                continue
            body = tar.extractfile(info) if info.isreg() and not info.issparse() else None
            if body is None or links.intersection(name.parents):
                raise CorpusError(_not_regular(name), archive)
            yield name, body


def _zip_members(
    handle: IO[bytes], wanted: Set[PurePosixPath], budget: "_SizeBudget", seen: list[str]
) -> Iterator[tuple[PurePosixPath, Readable]]:
    with zipfile.ZipFile(handle) as zipped:
        for info in zipped.infolist():
            seen.append(info.filename)
            name = _safe_name(info.filename, budget.archive)
            if name not in wanted:
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir() or info.flag_bits & 0x1 or kind not in (0, stat.S_IFREG):
                raise CorpusError(_not_regular(name), budget.archive)
            with zipped.open(info) as body:
                yield name, _LimitedStream(body, budget)


def _open_decompressed(handle: IO[bytes], magic: bytes) -> Readable:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(handle)
    if magic.startswith(b"BZh"):
        return bz2.open(handle)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(handle)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return cast(Readable, zstandard.ZstdDecompressor().stream_reader(handle, read_across_frames=True))
    return handle


class _SizeBudget:
    """The number of bytes that may still be unpacked; it also reports progress."""

    def __init__(self, archive: Path, limit_bytes: int, progress: Progress) -> None:
        self.archive = archive
        self.left_bytes = limit_bytes
        self.position: Callable[[], int] = int
        self._limit_bytes = limit_bytes
        self._progress = progress
        self._archive_bytes = archive.stat().st_size
        self._reported_bytes = 0

    def consume(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise CorpusError(
                f"this archive unpacks to more than {self._limit_bytes:,} bytes, too much for its size: "
                "if you trust it, unpack it yourself and list the files under `files`",
                self.archive,
            )
        position = min(self.position(), self._archive_bytes)
        if abs(position - self._reported_bytes) >= 2**20 or not size_bytes:
            self._reported_bytes = position
            self._progress(f"{self.archive.name} (unpacking)", position, self._archive_bytes)


class _LimitedStream:
    """A stream whose bytes count against a budget."""

    def __init__(self, stream: Readable, budget: _SizeBudget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int = -1, /) -> bytes:
        max_bytes = self._budget.left_bytes + 1
        chunk = self._stream.read(min(size, max_bytes) if size >= 0 else max_bytes)
        self._budget.consume(len(chunk))
        return chunk


def _safe_name(name: str, archive: Path) -> PurePosixPath:
    """The name without `./`. Raise if it could point outside the folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise CorpusError(f"{name!r} points outside the archive's folder: do not use this archive", archive)
    return path


def _not_regular(name: PurePosixPath) -> str:
    return f"{name} is not a regular file, but a link, a folder, encrypted or the like: do not use this archive"


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) or "nothing"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"

"""Take named members out of an archive: streamed, bounded, whole or not at all.

Archives come from strangers. Only members that were asked for are written, and only as plain files under
names of our own checking, so nothing in an archive can point outside the folder.
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

from dragoman.corpus.download_cache import Fetched, beside, locked, read_note
from dragoman.errors import CorpusError
from dragoman.files import write_json
from dragoman.progress import Progress, no_progress

LIMIT_BYTES = 64 * 2**30
"""No archive may unpack to more."""
LARGEST_RATIO = 200
"""Nor to so many times its own size: text shrinks to a third or a fifth, a bomb to a thousandth."""
FLOOR_BYTES = 2**24
"""Below this the ratio is not looked at: a small file of equal lines is no bomb."""

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,  # a compression that zipfile does not know
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
)


class Readable(Protocol):
    """What streams of all these kinds have in common."""

    def read(self, size: int = -1, /) -> bytes: ...


def unpack(
    archive: Fetched,
    members: Sequence[str],
    folder: Path,
    *,
    progress: Progress = no_progress,
    limit_bytes: int = LIMIT_BYTES,
) -> tuple[Path, ...]:
    """The members' paths below `folder`, in the order asked for; unpacked unless a stamp says that they already are."""
    names = [_safe_name(member, archive.path) for member in members]
    wanted = {name: folder / name for name in names}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        stamp_path = beside(folder, ".stamp.json")
        stamp = read_note(stamp_path)
        sizes = stamp.get("sizes", {}) if stamp.get("archive_sha256") == archive.sha256 else {}
        missing = {name: path for name, path in wanted.items() if not _is_there(path, sizes.get(str(name)))}
        if missing:
            ratio_bytes = max(FLOOR_BYTES, LARGEST_RATIO * archive.path.stat().st_size)
            sizes |= _take_out(missing, _SizeBudget(archive.path, min(limit_bytes, ratio_bytes), progress))
            write_json(stamp_path, {"archive_sha256": archive.sha256, "sizes": sizes})
    return tuple(wanted[name] for name in names)


def _is_there(path: Path, size_bytes: int | None) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes


def _take_out(wanted: dict[PurePosixPath, Path], budget: "_SizeBudget") -> dict[str, int]:
    """Write all wanted members, or none of them; their sizes."""
    archive = budget.archive
    drafts: dict[PurePosixPath, Path] = {}
    seen: list[str] = []
    try:
        try:
            for name, body in _members(wanted.keys(), budget, seen):
                wanted[name].parent.mkdir(parents=True, exist_ok=True)
                drafts[name] = beside(wanted[name], f".{os.getpid()}.part")
                _write(body, drafts[name])
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise  # The disk's fault: decompressors give no number, and zipfile seeks where a damaged index says.
            raise CorpusError(
                f"this archive is cut short, damaged or not an archive at all ({error}): delete it and fetch it again",
                archive,
            ) from error
        if lacking := [str(name) for name in wanted if name not in drafts]:
            raise CorpusError(
                f"this archive has no {' and no '.join(lacking)}: correct `members`; it holds {_some(seen)}", archive
            )
        sizes = {str(name): draft.stat().st_size for name, draft in drafts.items()}
        for name, draft in drafts.items():
            draft.replace(wanted[name])
        return sizes
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _write(body: Readable, path: Path) -> None:
    with path.open("wb") as out:
        while chunk := body.read(2**20):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())


def _members(
    wanted: Set[PurePosixPath], budget: "_SizeBudget", seen: list[str]
) -> Iterator[tuple[PurePosixPath, Readable]]:
    """The wanted members, each to be read before the next is asked for; `seen` gathers all names that were passed."""
    with budget.archive.open("rb") as handle:
        budget.position = handle.tell
        magic = handle.read(6)
        handle.seek(0)
        if magic.startswith(b"PK"):
            yield from _zip_members(handle, wanted, budget, seen)
        else:
            # Bounded where it comes out of the decompressor: so nothing that is skipped can be a bomb either.
            stream = _Bounded(_decompressed(handle, magic), budget)
            yield from _tar_members(stream, wanted, budget.archive, seen)
            while stream.read(2**20):
                pass  # To the very end, where gzip and xz keep their checksum.


def _tar_members(
    stream: "_Bounded", wanted: Set[PurePosixPath], archive: Path, seen: list[str]
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
                raise CorpusError(_not_plain(name), archive)
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
                raise CorpusError(_not_plain(name), budget.archive)
            with zipped.open(info) as body:
                yield name, _Bounded(body, budget)


def _decompressed(handle: IO[bytes], magic: bytes) -> Readable:
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
    """How much may still come out of an archive; it also tells how far the archive has been read."""

    def __init__(self, archive: Path, limit_bytes: int, progress: Progress) -> None:
        self.archive = archive
        self.left_bytes = limit_bytes
        self.position: Callable[[], int] = int
        self._limit_bytes = limit_bytes
        self._progress = progress
        self._archive_bytes = archive.stat().st_size
        self._told_bytes = 0

    def spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise CorpusError(
                f"this archive unpacks to more than {self._limit_bytes:,} bytes, far too much for its size: "
                "if you trust it, unpack it yourself and name the files with `files`",
                self.archive,
            )
        position = min(self.position(), self._archive_bytes)
        if abs(position - self._told_bytes) >= 2**20 or not size_bytes:
            self._told_bytes = position
            self._progress(f"{self.archive.name} (unpacking)", position, self._archive_bytes)


class _Bounded:
    """A stream that keeps to a budget."""

    def __init__(self, stream: Readable, budget: _SizeBudget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, size: int = -1, /) -> bytes:
        most = self._budget.left_bytes + 1
        chunk = self._stream.read(min(size, most) if size >= 0 else most)
        self._budget.spend(len(chunk))
        return chunk


def _safe_name(name: str, archive: Path) -> PurePosixPath:
    """The name without `./`; nothing that could lead out of a folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise CorpusError(f"{name!r} leads out of the archive's folder: do not use this archive", archive)
    return path


def _not_plain(name: PurePosixPath) -> str:
    return f"{name} is a link, a folder, encrypted or otherwise no plain file: do not use this archive"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) or "nothing"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"

"""Where fetched files lie, how they are told from damaged ones, and how two processes share them.

A file lies in the cache under its host and path, so one machine's `downloads` folder serves another as a mirror.
Beside it lies a receipt with its checksum: where a publisher states none, that of the first download holds.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dragoman.errors import DownloadError
from dragoman.files import write_json
from dragoman.progress import Progress


@dataclass(frozen=True)
class Remote:
    """A file on the web, and what is known of it."""

    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    """Some publishers and their readers state only this one: good against accidents, not against malice."""

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path.rsplit("/", 1)[-1]) or self.host

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def pinned(self) -> bool:
        return bool(self.sha256 or self.md5)


@dataclass(frozen=True)
class Fetched:
    """A whole, verified file."""

    path: Path
    sha256: str


def cache_root() -> Path:
    """`$DRAGOMAN_CACHE`, else `$XDG_CACHE_HOME/dragoman`, else `~/.cache/dragoman`."""
    if chosen := os.environ.get("DRAGOMAN_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "dragoman"
    return Path.home() / ".cache" / "dragoman"


def local_path(url: str) -> Path:
    """Where a URL's file lies below a cache's or mirror's root: its host and path, made safe as file names."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise DownloadError(f"{url} is not a web address: give one that begins with https:// or http://")
    names = [unquote(name) for name in (parts.netloc.rpartition("@")[2], *parts.path.split("/"))]
    if parts.query:
        names[-1] += f"?{parts.query}"
    safe = [quote(name, safe=" ,;:=+@()!") for name in names if name not in ("", ".", "..")]
    # Long names end in a digest: most file systems stop at 255 bytes, and suffixes are added.
    return Path(
        *(name if len(name) <= 200 else f"{name[:130]}-{hashlib.sha256(name.encode()).hexdigest()}" for name in safe)
    )


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Two processes that want the same file take turns; the second finds it there.

    The kernel frees the lock of a process that dies.
    """
    with beside(place, ".lock").open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Digests:
    """Size and checksums, gathered as bytes pass."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    @classmethod
    def of(cls, path: Path, name: str, progress: Progress) -> "Digests":
        digests = cls()
        total_bytes = path.stat().st_size
        with path.open("rb") as handle:
            while chunk := handle.read(2**20):
                digests.update(chunk)
                progress(f"{name} (verifying)", digests.size_bytes, total_bytes)
        return digests

    def update(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        self._sha256.update(chunk)
        self._md5.update(chunk)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def problem(self, known: Remote) -> str | None:
        """What differs from what is known, if anything does."""
        if known.size_bytes not in (None, self.size_bytes):
            return f"expected {known.size_bytes:,} bytes, got {self.size_bytes:,}"
        for kind, expected, got in (
            ("sha256", known.sha256, self.sha256),
            ("md5", known.md5, self._md5.hexdigest()),
        ):
            if expected and expected.lower() != got:
                return f"expected {kind} {expected.lower()}, got {got}"
        return None


def from_mirror(known: Remote, source: str, place: Path, mirror: Path, progress: Progress) -> Fetched:
    candidates = (mirror / local_path(known.url), mirror / known.name)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise DownloadError(
            f"{mirror} holds neither {known.name} nor {local_path(known.url)}: put the file of {known.url} there, "
            "or leave out --from to download it"
        )
    found = Digests.of(path, known.name, progress)
    if problem := found.problem(known):
        raise DownloadError(f"{path} is not the file that {source} describes ({problem}): {remedy(known, source)}")
    write_receipt(place, known, found)
    return Fetched(path, found.sha256)


def remedy(known: Remote, source: str) -> str:
    if source.endswith(".receipt.json"):
        return "delete that receipt if the publisher has replaced the file, and run the command again"
    return f"run the command again, or put the right {known.name} into a folder and name it with --from"


def with_receipt(remote: Remote, place: Path) -> tuple[Remote, str]:
    """What is known of a file, from its description or else from its first download, and which of the two."""
    path = beside(place, ".receipt.json")
    receipt = read_note(path)
    if remote.pinned or not receipt:
        return remote, "its description"
    return replace(remote, sha256=receipt.get("sha256"), size_bytes=receipt.get("size_bytes")), str(path)


def write_receipt(place: Path, remote: Remote, found: Digests) -> None:
    receipt = {"url": remote.url, "size_bytes": found.size_bytes, "sha256": found.sha256}
    path = beside(place, ".receipt.json")
    if read_note(path) != receipt:
        write_json(path, receipt)


def read_note(path: Path) -> dict[str, Any]:
    """An object; empty where the file is missing or was damaged, for all of these can be made again."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)

"""The download cache: where files are stored, how they are verified, and mirrors.

A file is stored under its host and path, so the `downloads` folder of one machine can be the mirror of another. Next to
it, `.checksum.json` records its checksum: if the publisher states none, that of the first download is binding.
"""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dragoman.errors import DownloadError
from dragoman.files import write_json
from dragoman.progress_callback import Progress

CHECKSUM_SUFFIX = ".checksum.json"
_MAX_NAME_BYTES = 200
"""Most file systems allow 255, and suffixes are added."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web, with its size and checksum if known."""

    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    """For publishers that state only this one: it detects accidents, not attacks."""

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path.rsplit("/", 1)[-1]) or self.host

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def has_checksum(self) -> bool:
        return bool(self.sha256 or self.md5)


@dataclass(frozen=True)
class VerifiedFile:
    """A complete and verified local file."""

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
    """The path of a URL's file below the root of a cache or mirror: host and path, as safe file names."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise DownloadError(f"{url} is not a web address: use one that begins with https:// or http://")
    names = [unquote(name) for name in (parts.netloc.rpartition("@")[2], *parts.path.split("/"))]
    if parts.query:
        names[-1] += f"?{parts.query}"
    safe = [quote(name, safe=" ,;:=+@()!") for name in names if name not in ("", ".", "..")]
    return Path(*(name if len(name) <= _MAX_NAME_BYTES else _shortened(name) for name in safe))


def _shortened(name: str) -> str:
    return f"{name[:130]}-{hashlib.sha256(name.encode()).hexdigest()}"


class Digests:
    """Size and checksums of a stream of bytes."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    @classmethod
    def of_file(cls, path: Path, name: str, progress: Progress) -> "Digests":
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

    def mismatch(self, expected: RemoteFile) -> str | None:
        """The difference from the expected size and checksums, or None."""
        if expected.size_bytes not in (None, self.size_bytes):
            return f"expected {expected.size_bytes:,} bytes, got {self.size_bytes:,}"
        for kind, checksum, found in (
            ("sha256", expected.sha256, self.sha256),
            ("md5", expected.md5, self._md5.hexdigest()),
        ):
            if checksum and checksum.lower() != found:
                return f"expected {kind} {checksum.lower()}, got {found}"
        return None


def fetch_from_mirror(
    expected: RemoteFile, stated_by: str, cached: Path, mirror: Path, progress: Progress
) -> VerifiedFile:
    """The verified file of a mirror; its checksum is recorded next to `cached`."""
    candidates = (mirror / local_path(expected.url), mirror / expected.name)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise DownloadError(
            f"{mirror} contains neither {expected.name} nor {local_path(expected.url)}: copy {expected.url} there, "
            "or leave out --from to download it"
        )
    digests = Digests.of_file(path, expected.name, progress)
    if mismatch := digests.mismatch(expected):
        raise DownloadError(f"{path} differs from {stated_by} ({mismatch}): {mismatch_remedy(expected, stated_by)}")
    record_checksum(cached, expected, digests)
    return VerifiedFile(path, digests.sha256)


def mismatch_remedy(expected: RemoteFile, stated_by: str) -> str:
    if stated_by.endswith(CHECKSUM_SUFFIX):
        return "if the publisher has replaced the file, delete that record and run the command again"
    return f"run the command again, or put the right {expected.name} into a folder and pass it with --from"


def with_recorded_checksum(remote: RemoteFile, cached: Path) -> tuple[RemoteFile, str]:
    """The expected size and checksum, from the description or else from the first download, and which of the two."""
    path = append_suffix(cached, CHECKSUM_SUFFIX)
    record = read_object(path)
    if remote.has_checksum or not record:
        return remote, "its description"
    return replace(remote, sha256=record.get("sha256"), size_bytes=record.get("size_bytes")), str(path)


def record_checksum(cached: Path, remote: RemoteFile, digests: Digests) -> None:
    record = {"url": remote.url, "size_bytes": digests.size_bytes, "sha256": digests.sha256}
    path = append_suffix(cached, CHECKSUM_SUFFIX)
    if read_object(path) != record:
        write_json(path, record)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file is missing or damaged, since all of these files can be recreated."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def append_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)

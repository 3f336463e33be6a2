"""Downloads into the cache: resumed after an interruption, verified, and renamed only when complete.

Until a file is complete and verified it is called `.part`; `.part.json` stores the server's version of it.
"""

import email.utils
import errno
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import httpx

from dragoman.corpus.download_cache import (
    CHECKSUM_SUFFIX,
    Digests,
    RemoteFile,
    VerifiedFile,
    append_suffix,
    fetch_from_mirror,
    local_path,
    mismatch_remedy,
    read_object,
    record_checksum,
    with_recorded_checksum,
)
from dragoman.errors import DownloadError
from dragoman.files import locked, write_json
from dragoman.progress_callback import Progress, no_progress

MAX_DOWNLOAD_BYTES = 32 * 2**30
"""The limit for files whose size is not stated."""
SIZE_TOLERANCE_BYTES = 2**16
"""A server that sends more than the expected size is disconnected after this many further bytes: one network read."""
MAX_REQUESTS = 200
"""The limit for transfers that gain only a little with each request."""
RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """The number of attempts for a failed request, and the waits between them."""

    attempts: int = 6
    """Consecutive attempts without any new bytes."""
    backoff_s: float = 1.0
    max_wait_s: float = 60.0
    timeout_s: float = 30.0
    """Time without a byte."""
    sleep: Callable[[float], None] = time.sleep


def fetch(
    remote: RemoteFile,
    cache: Path,
    *,
    mirror: Path | None = None,
    progress: Progress = no_progress,
    retry: RetryPolicy | None = None,
    limit_bytes: int = MAX_DOWNLOAD_BYTES,
) -> VerifiedFile:
    """The file from the mirror if one is given, else from the cache or the web; verified each time.

    If no checksum is stated, that of the first download is recorded and later downloads must match it.
    """
    cached = cache / "downloads" / local_path(remote.url)
    cached.parent.mkdir(parents=True, exist_ok=True)
    with locked(append_suffix(cached, ".lock")):  # A second process waits, and then finds the file in the cache.
        expected, stated_by = with_recorded_checksum(remote, cached)
        if mirror is not None:
            return fetch_from_mirror(expected, stated_by, cached, mirror, progress)
        if cached.is_file():
            digests = Digests.of_file(cached, remote.name, progress)
            if digests.mismatch(expected) is None:
                record_checksum(cached, remote, digests)
                return VerifiedFile(cached, digests.sha256)
            cached.unlink()
        return _download(
            expected, stated_by, cached, progress=progress, retry=retry or RetryPolicy(), limit_bytes=limit_bytes
        )


def remove_download(remote: RemoteFile, cache: Path) -> None:
    """Delete a file and its recorded checksum, so that the next fetch downloads it again."""
    cached = cache / "downloads" / local_path(remote.url)
    for path in (cached, append_suffix(cached, CHECKSUM_SUFFIX)):
        path.unlink(missing_ok=True)


class _PartialFile:
    """The bytes received so far: on disk, hashed, with the server's version of the file."""

    def __init__(self, cached: Path) -> None:
        self.path = append_suffix(cached, ".part")
        self._version_path = append_suffix(cached, ".part.json")
        self.path.touch()
        self.digests = Digests.of_file(self.path, cached.name, no_progress)
        self.was_resumed = self.digests.size_bytes > 0
        """True if the bytes come from several responses, which may be of different versions of the file."""
        self.was_restarted = False
        """True if the download was restarted once because the checksum of a resumed file was wrong."""
        self.version: str | None = read_object(self._version_path).get("version")
        self._handle: BinaryIO = self.path.open("r+b")
        self._handle.seek(0, os.SEEK_END)

    def restart(self, version: str | None) -> None:
        self._handle.seek(0)
        self._handle.truncate()
        self.digests, self.was_resumed, self.version = Digests(), False, version
        write_json(self._version_path, {"version": version})

    def append(self, chunk: bytes) -> None:
        self._handle.write(chunk)
        self.digests.update(chunk)

    def close(self) -> None:
        self._handle.close()

    def discard(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def finish(self, path: Path) -> None:
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self.close()
        self.path.replace(path)
        self._version_path.unlink(missing_ok=True)


class _RetryableError(Exception):
    """A failure after which the request is repeated, with the wait that the server asks for."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def _download(
    expected: RemoteFile, stated_by: str, cached: Path, *, progress: Progress, retry: RetryPolicy, limit_bytes: int
) -> VerifiedFile:
    part = _PartialFile(cached)
    try:
        with httpx.Client(follow_redirects=True, timeout=retry.timeout_s) as client:
            failures, most_bytes = 0, part.digests.size_bytes
            for _ in range(MAX_REQUESTS):
                try:
                    _receive(client, expected, part, progress, limit_bytes)
                    _verify(expected, stated_by, part)
                    break
                except _RetryableError as error:
                    has_gained = part.digests.size_bytes > most_bytes
                    most_bytes = max(most_bytes, part.digests.size_bytes)
                    failures = 0 if has_gained else failures + 1
                    if failures >= retry.attempts:
                        raise _incomplete(expected, part, str(error)) from error
                    progress(f"{expected.name}: {error}, trying again", part.digests.size_bytes, expected.size_bytes)
                    retry.sleep(_wait_s(error, failures, retry))
            else:
                raise _incomplete(expected, part, f"{MAX_REQUESTS} requests were interrupted")
        record_checksum(cached, expected, part.digests)
        part.finish(cached)
        return VerifiedFile(cached, part.digests.sha256)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DownloadError(
            f"the disk of {cached.parent} is full: free some space, or set DRAGOMAN_CACHE to a folder on another disk"
        ) from error
    finally:
        part.close()


def _receive(
    client: httpx.Client, expected: RemoteFile, part: _PartialFile, progress: Progress, limit_bytes: int
) -> None:
    """Send one request, and append its body to the part or restart the part."""
    done_bytes = part.digests.size_bytes
    if done_bytes and (done_bytes == expected.size_bytes or part.digests.sha256 == expected.sha256):
        return
    headers = {"Accept-Encoding": "identity"}
    if done_bytes and (part.version or expected.has_checksum):
        headers["Range"] = f"bytes={done_bytes}-"
        if part.version:
            headers["If-Range"] = part.version
    try:
        with client.stream("GET", expected.url, headers=headers) as response:
            total_bytes = _handle_headers(response, expected, part)
            if total_bytes == part.digests.size_bytes:
                return
            max_bytes = limit_bytes if expected.size_bytes is None else expected.size_bytes + SIZE_TOLERANCE_BYTES
            _check_size(expected, part, total_bytes, max_bytes)
            for chunk in response.iter_raw():
                if part.digests.size_bytes + len(chunk) > max_bytes:
                    raise _too_large(expected, part, max_bytes)
                part.append(chunk)
                progress(expected.name, part.digests.size_bytes, expected.size_bytes or total_bytes)
    except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
        raise DownloadError(f"{expected.url} redirects to no usable address ({error}): check the address") from error
    except httpx.TransportError as error:
        raise _RetryableError(str(error) or type(error).__name__) from error
    if expected.size_bytes is not None and part.digests.size_bytes < expected.size_bytes:
        raise _RetryableError("the server ended early")


def _handle_headers(response: httpx.Response, expected: RemoteFile, part: _PartialFile) -> int | None:
    """Prepare the part for the body of a response. Return the size of the complete file, if known."""
    content_range = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    total_bytes = int(content_range[2]) if content_range and content_range[2] != "*" else None
    status = response.status_code
    if status == httpx.codes.PARTIAL_CONTENT and content_range and content_range[1] == str(part.digests.size_bytes):
        part.was_resumed = True
        return total_bytes
    if status == httpx.codes.OK:
        part.restart(_version(response))
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None
    out_of_range = status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE
    if out_of_range and part.version and total_bytes == part.digests.size_bytes:
        return total_bytes  # The version is unchanged and the file complete: the connection broke after the last byte.
    if out_of_range or status == httpx.codes.PARTIAL_CONTENT:
        part.restart(None)
        raise _RetryableError("the server could not resume")
    if status in RETRYABLE_STATUSES:
        raise _RetryableError(f"HTTP {status}", _retry_after_s(response.headers.get("Retry-After", "")))
    raise DownloadError(
        f"{expected.url} returns HTTP {status} {response.reason_phrase}: check the address, "
        f"or put {expected.name} into a folder and pass it with --from"
    )


def _verify(expected: RemoteFile, stated_by: str, part: _PartialFile) -> None:
    mismatch = part.digests.mismatch(expected)
    if mismatch is None:
        return
    if part.was_resumed and not part.was_restarted:
        part.was_restarted = True
        part.restart(None)
        raise _RetryableError(f"after resuming, {mismatch}")
    part.discard()
    raise DownloadError(f"{expected.url} differs from {stated_by} ({mismatch}): {mismatch_remedy(expected, stated_by)}")


def _incomplete(expected: RemoteFile, part: _PartialFile, reason: str) -> DownloadError:
    total = "" if expected.size_bytes is None else f" of {expected.size_bytes:,}"
    return DownloadError(
        f"{expected.url} could not be downloaded completely ({reason}; {part.digests.size_bytes:,}{total} bytes "
        f"received): run the command again to resume, or put {expected.name} into a folder and pass it with --from"
    )


def _wait_s(error: _RetryableError, failures: int, retry: RetryPolicy) -> float:
    if error.wait_s is not None:
        return min(error.wait_s, retry.max_wait_s)
    # Jitter: clients that were disconnected together should not reconnect together.
    return min(retry.backoff_s * 2.0**failures, retry.max_wait_s) * random.uniform(0.5, 1.0)


def _retry_after_s(text: str) -> float | None:
    """Parse Retry-After, which is a number of seconds or a date; None if it is missing or invalid."""
    if text.strip().isdecimal():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _version(response: httpx.Response) -> str | None:
    """The value for If-Range: a strong ETag, else the date of the last modification."""
    etag: str = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _check_size(expected: RemoteFile, part: _PartialFile, total_bytes: int | None, max_bytes: int) -> None:
    """Fail before the transfer if the file is too large or the disk too full."""
    if total_bytes is not None and total_bytes > max_bytes:
        raise _too_large(expected, part, max_bytes)
    needed_bytes = (expected.size_bytes or total_bytes or 0) - part.digests.size_bytes
    free_bytes = shutil.disk_usage(part.path.parent).free
    if needed_bytes > free_bytes:
        raise DownloadError(
            f"{expected.name} needs {needed_bytes:,} bytes, but {part.path.parent} has {free_bytes:,} free: "
            "free some space, or set DRAGOMAN_CACHE to a folder on another disk"
        )


def _too_large(expected: RemoteFile, part: _PartialFile, max_bytes: int) -> DownloadError:
    part.discard()
    return DownloadError(
        f"{expected.url} is larger than the {expected.size_bytes or max_bytes:,} bytes allowed: the file was replaced, "
        f"or the server sends another one; check the address, or put the right {expected.name} into a folder and "
        "pass it with --from"
    )

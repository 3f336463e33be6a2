"""Fetch files from the web into the cache: resumed after a cut, verified, and never half there.

Until a file is whole and verified it is called `.part`, and the server's name for its version lies beside it.
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
    Digests,
    Fetched,
    Remote,
    beside,
    from_mirror,
    local_path,
    locked,
    read_note,
    remedy,
    with_receipt,
    write_receipt,
)
from dragoman.errors import DownloadError
from dragoman.files import write_json
from dragoman.progress import Progress, no_progress

LIMIT_BYTES = 32 * 2**30
"""Nothing larger is fetched where the size is not known beforehand."""
SLACK_BYTES = 2**16
"""So much over the expected size is read before a server that sends too much is cut off: one network read."""
MOST_REQUESTS = 200
"""Even a transfer that gains a little each time ends."""
TRY_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server that fails."""

    attempts: int = 6
    """In a row, none of which got further than the best before it."""
    backoff_s: float = 1.0
    longest_wait_s: float = 60.0
    timeout_s: float = 30.0
    """Without a byte."""
    sleep: Callable[[float], None] = time.sleep


def fetch(
    remote: Remote,
    cache: Path,
    *,
    mirror: Path | None = None,
    progress: Progress = no_progress,
    patience: Patience | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Fetched:
    """The file from the cache, from the mirror if one is given, or else from the web; verified each time.

    Where no checksum is known, that of the first download is written into a receipt and holds from then on.
    """
    place = cache / "downloads" / local_path(remote.url)
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place):
        known, source = with_receipt(remote, place)
        if mirror is not None:
            return from_mirror(known, source, place, mirror, progress)
        if place.is_file():
            found = Digests.of(place, remote.name, progress)
            if found.problem(known) is None:
                write_receipt(place, remote, found)
                return Fetched(place, found.sha256)
            place.unlink()
        return _download(
            known, source, place, progress=progress, patience=patience or Patience(), limit_bytes=limit_bytes
        )


def forget(remote: Remote, cache: Path) -> None:
    """Drop a file and its receipt, so that the next fetch begins anew."""
    place = cache / "downloads" / local_path(remote.url)
    for path in (place, beside(place, ".receipt.json")):
        path.unlink(missing_ok=True)


class _Part:
    """The bytes that have come so far: on disk, hashed, with the server's name for their version."""

    def __init__(self, place: Path) -> None:
        self.path = beside(place, ".part")
        self._version_path = beside(place, ".part.json")
        self.path.touch()
        self.digests = Digests.of(self.path, place.name, no_progress)
        self.spliced = self.digests.size_bytes > 0
        """Of several responses, so that a wrong checksum may be the seam's fault and not the file's."""
        self.doubted = False
        """Already begun anew once because of its checksum."""
        self.version: str | None = read_note(self._version_path).get("version")
        self._handle: BinaryIO = self.path.open("r+b")
        self._handle.seek(0, os.SEEK_END)

    def restart(self, version: str | None) -> None:
        self._handle.seek(0)
        self._handle.truncate()
        self.digests, self.spliced, self.version = Digests(), False, version
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

    def finish(self, place: Path) -> None:
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self.close()
        self.path.replace(place)
        self._version_path.unlink(missing_ok=True)


class _InterruptedError(Exception):
    """Worth another attempt, perhaps after the wait that the server asks for."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def _download(
    known: Remote, source: str, place: Path, *, progress: Progress, patience: Patience, limit_bytes: int
) -> Fetched:
    part = _Part(place)
    try:
        with httpx.Client(follow_redirects=True, timeout=patience.timeout_s) as client:
            fruitless, furthest_bytes = 0, part.digests.size_bytes
            for _ in range(MOST_REQUESTS):
                try:
                    _receive(client, known, part, progress, limit_bytes)
                    _verify(known, source, part)
                    break
                except _InterruptedError as cut:
                    gained = part.digests.size_bytes > furthest_bytes
                    furthest_bytes = max(furthest_bytes, part.digests.size_bytes)
                    fruitless = 0 if gained else fruitless + 1
                    if fruitless >= patience.attempts:
                        raise _gave_up(known, part, str(cut)) from cut
                    progress(f"{known.name}: {cut}, trying again", part.digests.size_bytes, known.size_bytes)
                    patience.sleep(_wait_s(cut, fruitless, patience))
            else:
                raise _gave_up(known, part, f"{MOST_REQUESTS} requests were cut")
        write_receipt(place, known, part.digests)
        part.finish(place)
        return Fetched(place, part.digests.sha256)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DownloadError(
            f"{place.parent} is full: free some space, or set DRAGOMAN_CACHE to another disk"
        ) from error
    finally:
        part.close()


def _receive(client: httpx.Client, known: Remote, part: _Part, progress: Progress, limit_bytes: int) -> None:
    """One request: what comes is appended to the part, or the part is begun anew."""
    done_bytes = part.digests.size_bytes
    if done_bytes and (done_bytes == known.size_bytes or part.digests.sha256 == known.sha256):
        return
    headers = {"Accept-Encoding": "identity"}
    if done_bytes and (part.version or known.pinned):
        headers["Range"] = f"bytes={done_bytes}-"
        if part.version:
            headers["If-Range"] = part.version
    try:
        with client.stream("GET", known.url, headers=headers) as response:
            total_bytes = _begin(response, known, part)
            if total_bytes == part.digests.size_bytes:
                return
            ceiling_bytes = limit_bytes if known.size_bytes is None else known.size_bytes + SLACK_BYTES
            _check_room(known, part, total_bytes, ceiling_bytes)
            for chunk in response.iter_raw():
                if part.digests.size_bytes + len(chunk) > ceiling_bytes:
                    raise _too_much(known, part, ceiling_bytes)
                part.append(chunk)
                progress(known.name, part.digests.size_bytes, known.size_bytes or total_bytes)
    except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
        raise DownloadError(f"{known.url} leads nowhere ({error}): check the address") from error
    except httpx.TransportError as error:
        raise _InterruptedError(str(error) or type(error).__name__) from error
    if known.size_bytes is not None and part.digests.size_bytes < known.size_bytes:
        raise _InterruptedError("the server ended early")


def _begin(response: httpx.Response, known: Remote, part: _Part) -> int | None:
    """Read the head of a response, leave the part at the place where its body belongs, and return the whole's size."""
    ranged = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    whole_bytes = int(ranged[2]) if ranged and ranged[2] != "*" else None
    status = response.status_code
    if status == httpx.codes.PARTIAL_CONTENT and ranged and ranged[1] == str(part.digests.size_bytes):
        part.spliced = True
        return whole_bytes
    if status == httpx.codes.OK:
        part.restart(_version(response))
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None
    if (
        status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE
        and part.version
        and whole_bytes == part.digests.size_bytes
    ):
        return (
            whole_bytes  # The version still holds and nothing is left to send: the last cut came after the last byte.
        )
    if status in (httpx.codes.PARTIAL_CONTENT, httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE):
        part.restart(None)
        raise _InterruptedError("the server could not resume")
    if status in TRY_LATER:
        raise _InterruptedError(f"HTTP {status}", _retry_after_s(response.headers.get("Retry-After", "")))
    raise DownloadError(
        f"{known.url} answers HTTP {status} {response.reason_phrase}: check the address, "
        f"or put {known.name} into a folder and name it with --from"
    )


def _verify(known: Remote, source: str, part: _Part) -> None:
    problem = part.digests.problem(known)
    if problem is None:
        return
    if part.spliced and not part.doubted:
        part.doubted = True
        part.restart(None)
        raise _InterruptedError(f"after resuming, {problem}")
    part.discard()
    raise DownloadError(f"{known.url} is not the file that {source} describes ({problem}): {remedy(known, source)}")


def _gave_up(known: Remote, part: _Part, reason: str) -> DownloadError:
    whole = "" if known.size_bytes is None else f" of {known.size_bytes:,}"
    return DownloadError(
        f"{known.url} could not be fetched whole ({reason}; {part.digests.size_bytes:,}{whole} bytes received): "
        f"run the command again to resume, or put {known.name} into a folder and name it with --from"
    )


def _wait_s(cut: _InterruptedError, fruitless: int, patience: Patience) -> float:
    if cut.wait_s is not None:
        return min(cut.wait_s, patience.longest_wait_s)
    # Jitter: workers that were cut off together should not come back together.
    return min(patience.backoff_s * 2.0**fruitless, patience.longest_wait_s) * random.uniform(0.5, 1.0)


def _retry_after_s(text: str) -> float | None:
    """Seconds, or a date; None where the server does not say."""
    if text.strip().isdecimal():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _version(response: httpx.Response) -> str | None:
    """What If-Range compares: a strong ETag, else the date of the last change."""
    etag: str = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _check_room(known: Remote, part: _Part, total_bytes: int | None, ceiling_bytes: int) -> None:
    """Fail before the transfer and not at its end."""
    if total_bytes is not None and total_bytes > ceiling_bytes:
        raise _too_much(known, part, ceiling_bytes)
    needed_bytes = (known.size_bytes or total_bytes or 0) - part.digests.size_bytes
    free_bytes = shutil.disk_usage(part.path.parent).free
    if needed_bytes > free_bytes:
        raise DownloadError(
            f"{known.name} needs {needed_bytes:,} bytes and {part.path.parent} has {free_bytes:,} free: "
            "free some space, or set DRAGOMAN_CACHE to another disk"
        )


def _too_much(known: Remote, part: _Part, ceiling_bytes: int) -> DownloadError:
    part.discard()
    return DownloadError(
        f"{known.url} sends more than the {known.size_bytes or ceiling_bytes:,} bytes that it may have: the file was "
        "replaced or another is sent in its place; check the address, "
        f"or put the right {known.name} into a folder and name it with --from"
    )

"""What a server grants: how much, how often, to whom, for how long."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.files import write_atomic

REMEMBERED_CLIENTS = 10_000
KEY_BYTES = 24


@dataclass(frozen=True)
class Limits:
    """The defaults suit a machine with a few cores."""

    max_characters: int = 20_000
    """Of one request."""
    max_file_bytes: int = 1 << 20
    max_requests: int = 64
    """Under way at once; more are refused."""
    max_waiting: int = 256
    """Sentences whose turn has not come; above it, new requests are refused."""
    requests_per_minute: int = 0
    """Of one client; 0 is as many as it likes."""
    timeout_s: float = 30.0
    """For a request, from its first byte to its answer's last. Files may take ten times as long."""
    read_timeout_s: float = 10.0
    """For a client to send its request."""

    @property
    def max_body_bytes(self) -> int:
        """A character takes up to 12 bytes, as two escapes of JSON or four of a form; beside the text stands little."""
        return 12 * self.max_characters + 4096


class Keys:
    """API keys by their hashes.

    A file of them holds nothing that opens a door: a key is random and long, so that no one guesses it from its hash.
    """

    def __init__(self, hashes: dict[str, str]) -> None:
        self._names = {digest: name for name, digest in hashes.items()}

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """One key a line: its name and its hash."""
        hashes = {}
        for number, line in enumerate(_lines(path), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, digest = line.strip().rpartition(" ")
            if not name or len(digest) != 64:
                raise DragomanError(f"{path}, line {number} is no name and hash: make keys with --new-key NAME.")
            hashes[name] = digest
        if not hashes:
            raise DragomanError(f"{path} holds no key: make one with --new-key NAME.")
        return cls(hashes)

    def owner(self, key: str) -> str | None:
        """Whose key it is."""
        digest = _digest(key)
        found = None
        for known, name in self._names.items():  # all of them, so that time tells nothing
            if hmac.compare_digest(known, digest):
                found = name
        return found


def make_key(path: Path, name: str) -> str:
    """Add a key to a file, made if need be, and give the key itself, which is written nowhere."""
    if not name.strip() or "\n" in name or name.startswith("#"):
        raise DragomanError(f"'{name}' cannot name a key: use a word or two.")
    lines = _lines(path) if path.exists() else []
    if any(line.rpartition(" ")[0] == name for line in lines):
        raise DragomanError(f"{path} has a key named {name} already: choose another name, or remove its line first.")
    key = secrets.token_urlsafe(KEY_BYTES)
    write_atomic(path, "".join(f"{line}\n" for line in [*lines, f"{name} {_digest(key)}"]))
    path.chmod(0o600)
    return key


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DragomanError(
            f"The keys in {path} cannot be read ({reason}): check the path, or make a file of keys with --new-key NAME."
        ) from None


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class RateLimiter:
    """How often each client may ask: a bucket that refills steadily, with a minute's worth at most in it."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0 if the client may ask now, which is counted; else how long it should wait."""
        if not self._per_minute:
            return 0.0
        now_at_s = self._clock()
        content, seen_at_s = self._buckets.pop(client, (float(self._per_minute), now_at_s))
        content = min(self._per_minute, content + (now_at_s - seen_at_s) * self._per_minute / 60)
        granted = content >= 1
        self._buckets[client] = (content - 1 if granted else content, now_at_s)
        while len(self._buckets) > REMEMBERED_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - content) * 60 / self._per_minute

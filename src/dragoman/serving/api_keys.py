"""API keys, stored as hashes in a text file."""

import hashlib
import hmac
import re
import secrets
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.files import write_atomic
from dragoman.text_lines import read_text_lines

KEY_BYTES = 24
_SHA256 = re.compile("[0-9a-f]{64}")


class ApiKeys:
    """API keys, looked up by hash.

    A leaked file gives no access: keys are long and random, so they cannot be guessed from their hashes.
    """

    def __init__(self, digests: dict[str, str]) -> None:
        self._owners = {digest: owner for owner, digest in digests.items()}

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """Read a key file: one key per line, as its owner's name and its hash."""
        digests = {}
        for number, line in enumerate(_read_lines(path), 1):
            if not line.strip() or line.startswith("#"):
                continue
            owner, _, digest = line.strip().rpartition(" ")
            if not owner or not _SHA256.fullmatch(digest):
                raise DragomanError(
                    f"{path}, line {number} is not a name and a SHA-256 hash: create keys with --new-key NAME."
                )
            digests[owner] = digest
        if not digests:
            raise DragomanError(f"{path} contains no key: create one with --new-key NAME.")
        return cls(digests)

    def owner(self, key: str) -> str | None:
        """Name of the key's owner, or None if the key is unknown."""
        digest = _digest(key)
        found = None
        for known, owner in self._owners.items():  # Compares with every key, so that the time taken reveals nothing.
            if hmac.compare_digest(known, digest):
                found = owner
        return found


def create_api_key(path: Path, owner: str) -> str:
    """Add the hash of a new key to a key file, creating the file if needed, and return the key itself."""
    if not owner.strip() or "\n" in owner or owner.startswith("#"):
        raise DragomanError(f"'{owner}' is not a valid key name: use one or two words.")
    lines = _read_lines(path) if path.exists() else []
    if any(line.rpartition(" ")[0] == owner for line in lines):
        raise DragomanError(
            f"{path} already contains a key named {owner}: choose another name, or remove its line first."
        )
    key = secrets.token_urlsafe(KEY_BYTES)
    write_atomic(path, "".join(f"{line}\n" for line in [*lines, f"{owner} {_digest(key)}"]))
    path.chmod(0o600)
    return key


def _read_lines(path: Path) -> list[str]:
    try:
        return read_text_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text file"
        raise DragomanError(
            f"Cannot read the key file {path} ({reason}): check the path, or create a key file with --new-key NAME."
        ) from None


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()

"""Translated files that wait for their download."""

import asyncio
import re
import secrets
import tempfile
from dataclasses import dataclass
from typing import IO

LIFETIME_S = 1800.0
MAX_FILES = 128
"""Files that wait. Beyond it, the oldest is removed; each takes a file descriptor."""
TOKEN_BYTES = 24
MAX_NAME_CHARACTERS = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class TranslatedFile:
    content: IO[bytes]
    name: str
    """Name for the client's disk: ASCII letters, digits, and `_-.` only."""
    media_type: str

    def read(self) -> bytes:
        self.content.seek(0)
        return self.content.read()


class TranslatedFiles:
    """Files under names that cannot be guessed, for half an hour.

    They have no name on disk: no request can reach another file, and none is left behind however the server ends.
    """

    def __init__(self, lifetime_s: float = LIFETIME_S, max_files: int = MAX_FILES) -> None:
        self._lifetime_s = lifetime_s
        self._max_files = max_files
        self._files: dict[str, TranslatedFile] = {}

    def add(self, content: IO[bytes], name: str, media_type: str) -> str:
        """Store a file from now on; returns the name to download it by."""
        key = f"{secrets.token_urlsafe(TOKEN_BYTES)}.{name}"
        self._files[key] = TranslatedFile(content, name, media_type)
        while len(self._files) > self._max_files:
            self._remove(next(iter(self._files)))
        asyncio.get_running_loop().call_later(self._lifetime_s, self._remove, key)
        return key

    def find(self, key: str) -> TranslatedFile | None:
        return self._files.get(key)

    def close(self) -> None:
        for key in list(self._files):
            self._remove(key)

    def _remove(self, key: str) -> None:
        if (file := self._files.pop(key, None)) is not None:
            file.content.close()


def write_unnamed(content: bytes) -> IO[bytes]:
    """A temporary file that the operating system removes when it is closed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (stays open until it expires)
    file.write(content)
    file.flush()
    return file


def translated_name(name: str, target: str) -> str:
    """Name of a translated file, as LibreTranslate makes it: `report.txt` becomes `report_de.txt`.

    It goes into a header and a URL, so it keeps safe characters only.
    """
    stem, _, extension = re.split(r"[/\\]", name)[-1].rpartition(".")
    parts = (_UNSAFE.sub("_", part).strip("_") for part in (stem[:MAX_NAME_CHARACTERS], target, extension.lower()))
    safe_stem, safe_target, safe_extension = parts
    return f"{safe_stem or 'file'}_{safe_target}.{safe_extension}"

"""Documents that are ZIP archives of parts: Word, PowerPoint, OpenDocument."""

import copy
import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from dragoman.documents.document import UnreadableError

MAX_PARTS = 10_000
MAX_UNPACKED_BYTES = 256 << 20
"""Size of all parts together, unpacked."""
MAX_PART_BYTES = 32 << 20
"""Size of a part that is parsed, unpacked."""
MAX_RATIO = 200
"""Of unpacked to packed size. Text of documents reaches about 50, archives made to exhaust memory 1,000."""
_SMALL_BYTES = 1 << 20
"""Parts below this size are harmless, whatever their ratio."""
_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_DAMAGES = (
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, ValueError, EOFError, OSError,
    OverflowError,
)  # fmt: skip


class ZipPackage:
    """The parts of a document. All limits are checked before anything is unpacked."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(_OLE_SIGNATURE):
            raise UnreadableError(
                "The file is encrypted, or in the format of Office 97: save it without a password in a current format."
            )
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except _DAMAGES:
            raise _damaged() from None
        self._entries = self._archive.infolist()
        self._check(len(content))
        self.names = frozenset(entry.filename for entry in self._entries)

    def _check(self, packed_bytes: int) -> None:
        names = [entry.filename for entry in self._entries]
        if len(names) > MAX_PARTS or sum(entry.file_size for entry in self._entries) > MAX_UNPACKED_BYTES:
            raise UnreadableError(
                f"The file unpacks to more than {MAX_PARTS:,} parts or {MAX_UNPACKED_BYTES >> 20} MiB: split it."
            )
        if any(entry.flag_bits & 1 for entry in self._entries):
            raise UnreadableError("The file is encrypted: save it without a password.")
        unpacked_bytes = sum(entry.file_size for entry in self._entries)
        if unpacked_bytes > max(_SMALL_BYTES, MAX_RATIO * packed_bytes):
            raise UnreadableError("The file unpacks to a suspicious size, and is not opened: save it again.")
        if len(set(names)) < len(names) or any(map(_is_outside, names)):
            raise UnreadableError("The file has parts with names that are not allowed: save it again.")

    def read(self, name: str) -> bytes:
        """Content of a part that is going to be parsed."""
        try:
            entry = self._archive.getinfo(name)
        except KeyError:
            raise UnreadableError(f"The file has no part {name[:60]}: save it again.") from None
        if entry.file_size > MAX_PART_BYTES:
            raise UnreadableError(f"The text of the file is larger than {MAX_PART_BYTES >> 20} MiB: split it.")
        return self._read(entry)

    def _read(self, entry: zipfile.ZipInfo) -> bytes:
        try:
            return self._archive.read(entry)
        except _DAMAGES:
            raise _damaged() from None

    def replace(self, parts: Mapping[str, bytes]) -> bytes:
        """The archive with new contents of some parts. The others keep their bytes, all of them order and date."""
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as archive:
            for entry in self._entries:
                content = parts.get(entry.filename)
                # A copy: the archive writes the new place and size into it.
                archive.writestr(copy.copy(entry), self._read(entry) if content is None else content)
        return result.getvalue()


def _is_outside(name: str) -> bool:
    """True for names that would leave the folder which the archive is unpacked to."""
    return name.startswith(("/", "\\")) or ":" in name or "\\" in name or ".." in name.split("/") or "\0" in name


def _damaged() -> UnreadableError:
    return UnreadableError("The file is damaged, or not in the format of its extension: save it again.")

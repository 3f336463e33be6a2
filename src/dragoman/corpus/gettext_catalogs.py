"""Readers for gettext message catalogs: PO and compiled MO files."""

import codecs
import re
import struct
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import polib

from dragoman.corpus.compression import read_whole
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.line_formats import PairIterator, encode_line
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError

MAX_CATALOG_BYTES = 1 << 26
"""PO and MO files are read into memory. The largest programs have catalogs of a few MB."""
MAX_FIELD_LINES = 4096
"""Lines of a message or a comment. polib takes quadratic time for them."""

_MO_MAGIC = 0x950412DE
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
# Decoders that take quadratic time; no text is in these encodings.
_QUADRATIC_CHARSETS = frozenset({"idna", "punycode"})
_PO_FIELD = re.compile(rb"^[ \t]*(?:#~[ \t]+)?msg", re.MULTILINE)
# Everything that polib treats as the end of a line: of the file, or of a message.
_PO_LINE_END = re.compile(rb"[\n\x0b\x0c\x1c-\x1e\x85]|\\[nrvf]|\xe2\x80[\xa8\xa9]")
_PO_LINE = re.compile(r"\(line (\d+)\)")


class InvalidPOError(Exception):
    """A PO file that polib cannot parse, with the line if known."""

    def __init__(self, line: int | None) -> None:
        super().__init__(line)
        self.line = line


class _Catalog(polib.POFile):  # type: ignore[misc]
    """A PO file that removes its header in linear time: polib renders every entry before it as text."""

    def remove(self, entry: polib.POEntry) -> None:
        del self[next(index for index, other in enumerate(self) if other is entry)]


def read_po(path: Path, languages: Languages) -> PairIterator:
    """Translated messages that are neither fuzzy nor obsolete."""
    content = read_whole(path, MAX_CATALOG_BYTES).removeprefix(b"\xef\xbb\xbf")
    content = _to_utf8(content, _charset(content[: 1 << 16]), path)
    try:
        # Latin-1 maps each byte to one character, so invalid UTF-8 passes through for cleaning to count.
        catalog = load_po(content, "latin-1")
    except InvalidPOError as error:
        raise CorpusError("is not a valid PO file: fix it as `msgfmt --check` reports", path, error.line) from None
    _check_language(catalog.metadata.get("Language", ""), languages, path)
    for entry in catalog:
        if entry.obsolete or entry.fuzzy:
            continue
        forms = [entry.msgstr_plural[index] for index in sorted(entry.msgstr_plural)] or [entry.msgstr]
        yield from _message_pairs(
            entry.msgid.encode("latin-1"),
            entry.msgid_plural.encode("latin-1"),
            [form.encode("latin-1") for form in forms],
        )


def load_po(content: bytes, encoding: str) -> polib.POFile:
    """Parse a PO file that was read into memory, in linear time.

    polib opens a string as a path if such a file exists, and splits it at every Unicode line separator. A temporary
    file avoids both.
    """
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    field_starts = [0, *(field.start() for field in _PO_FIELD.finditer(content)), len(content)]
    for begin, end in pairwise(field_starts):
        if sum(1 for _ in islice(_PO_LINE_END.finditer(content, begin, end), MAX_FIELD_LINES + 1)) > MAX_FIELD_LINES:
            raise InvalidPOError(content.count(b"\n", 0, begin) + 1)
    with TemporaryDirectory(prefix="dragoman-") as folder:
        copy = Path(folder, "messages.po")
        copy.write_bytes(content)
        try:
            return polib.pofile(str(copy), encoding=encoding, klass=_Catalog)
        except Exception as error:  # polib raises any exception that its parser runs into.
            line = _PO_LINE.search(str(error))
            raise InvalidPOError(int(line[1]) if line else None) from None


def read_mo(path: Path, languages: Languages) -> PairIterator:
    """The messages of a compiled catalog.

    Not read with polib, which trusts the offset tables and rejects invalid UTF-8. Here the tables are checked before
    anything is copied, so a malicious file costs no memory.
    """
    content = read_whole(path, MAX_CATALOG_BYTES)
    if not content:
        return
    try:
        messages = list(zip(*_mo_tables(content), strict=True))
    except (struct.error, ValueError) as error:
        raise CorpusError(f"is not a valid MO file ({error}): compile it again with `msgfmt`", path) from None
    header = next((_slice(content, target) for source, target in messages if source[0] == 0), b"")
    _check_language(_header_field(header, b"Language"), languages, path)
    charset = _charset(header)
    for source, target in messages:
        if source[0] == 0:
            continue
        message_id = _to_utf8(_slice(content, source), charset, path).rpartition(b"\x04")[2]
        singular, _, plural = message_id.partition(b"\0")
        yield from _message_pairs(singular, plural, _to_utf8(_slice(content, target), charset, path).split(b"\0"))


def _mo_tables(content: bytes) -> Iterator[list[tuple[int, int]]]:
    """Length and offset of every original message, then of every translation."""
    order = "<" if content[:4] == struct.pack("<I", _MO_MAGIC) else ">"
    magic, revision, count, *offsets = struct.unpack_from(f"{order}5I", content)
    if magic != _MO_MAGIC:
        raise ValueError("the magic number is wrong")
    if revision >> 16 > 1:
        raise ValueError(f"revision {revision >> 16} is unknown")
    for offset in offsets:
        if offset + 8 * count > len(content):
            raise ValueError(f"the table of {count} messages extends beyond the end of the file")
        table = list(struct.iter_unpack(f"{order}II", content[offset : offset + 8 * count]))
        if any(begin + length > len(content) for length, begin in table):
            raise ValueError("a message extends beyond the end of the file")
        if sum(length for length, _ in table) > len(content):
            raise ValueError("messages overlap")
        yield table


def _slice(content: bytes, entry: tuple[int, int]) -> bytes:
    length, begin = entry
    return content[begin : begin + length]


def _message_pairs(singular: bytes, plural: bytes, forms: list[bytes]) -> PairIterator:
    """The singular with the first form and the plural with the last; further plural forms are skipped."""
    sides = [(singular, forms[0])]
    if plural:
        sides.append((plural, forms[-1]))
    for source, target in sides:
        if source and target:
            yield (
                encode_line(source.decode("utf-8", "surrogateescape")),
                encode_line(target.decode("utf-8", "surrogateescape")),
            )


def _check_language(stated: str, languages: Languages, path: Path) -> None:
    if stated and not same_language(stated, languages.target):
        raise CorpusError(
            f"wrong language: the file translates into {stated}, not {languages.target}: "
            "change --languages, or leave the file out",
            path,
        )


def _header_field(header: bytes, name: bytes) -> str:
    field = re.search(rb"^" + name + rb":[ \t]*(.*)$", header, re.MULTILINE | re.IGNORECASE)
    return field[1].decode("latin-1").strip() if field else ""


def _charset(header: bytes) -> str:
    found = _CHARSET.search(header)
    return found[1].decode("latin-1").lower() if found else "utf-8"


def _to_utf8(text: bytes, charset: str, path: Path) -> bytes:
    """Convert to UTF-8. UTF-8 passes unchanged, valid or not; `CHARSET` is the placeholder in templates."""
    if charset in {"utf-8", "utf8", "ascii", "us-ascii", "charset"}:
        return text
    try:
        if codecs.lookup(charset).name in _QUADRATIC_CHARSETS:
            raise LookupError
        return text.decode(charset).encode("utf-8", "surrogatepass")
    except (LookupError, ValueError):
        raise CorpusError(
            f"is not in {charset} as its header states: convert it with `msgconv -t UTF-8`", path
        ) from None

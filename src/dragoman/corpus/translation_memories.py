"""Readers of what translators work with: TMX translation memories, and gettext's PO and MO message catalogues."""

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import polib
from lxml import etree

from dragoman.corpus.compression import read_blocks, read_whole
from dragoman.corpus.language_codes import find_language, same_language
from dragoman.corpus.line_formats import MAX_LINE_BYTES, Pairs, bytes_of
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError

MAX_CATALOGUE_BYTES = 1 << 26
"""PO and MO are held in memory whole. The largest programs have catalogues of a few MB."""

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_NATIVE_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
_LANGUAGES_LISTED = 12

_MO_MAGIC = 0x950412DE
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_PO_LINE = re.compile(r"\(line (\d+)\)")


def read_tmx(path: Path, languages: Languages) -> Pairs:
    """The translation units that have both languages.

    A parser target builds no tree, so that memory stays bounded whatever the file holds. Neither a DTD nor an external
    entity is ever loaded, and the parser refuses internal entities that grow beyond measure.
    """
    units = _TmxUnits(path, languages)
    parser = etree.XMLParser(target=units, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    found_pairs = False
    try:
        for block in read_blocks(path):
            parser.feed(block)
            found_pairs |= bool(units.pairs)
            yield from units.take()
        parser.close()
    except etree.XMLSyntaxError as error:
        yield from units.take()
        reason = (error.msg or "no XML at all").partition(", line")[0]
        raise CorpusError(
            f"is not well-formed XML ({reason}): export it again, or check it with `xmllint --noout`",
            path,
            error.lineno or 1,
        ) from None
    if not found_pairs:
        wanted = f"{languages.source} and {languages.target}"
        if not units.languages:
            raise CorpusError("holds no translation units: is it TMX?", path)
        held = ", ".join(sorted(units.languages)[:_LANGUAGES_LISTED])
        raise CorpusError(
            f"wrong languages: no translation unit has both {wanted}, but the file holds {held}: name two of these",
            path,
        )


class _TmxUnits:
    """What the parser calls for each tag; gathers the pairs of finished units until they are taken."""

    def __init__(self, path: Path, languages: Languages) -> None:
        self._path = path
        self._wanted = languages
        self.languages: set[str] = set()
        self.pairs: list[tuple[bytes, bytes]] = []
        self._variants: dict[str, str] = {}
        self._language = ""
        self._text: list[str] = []
        self._text_length = 0
        self._kept: list[bool] = []
        """For each element open within the segment, whether its text is text or native code."""

    def take(self) -> list[tuple[bytes, bytes]]:
        pairs, self.pairs = self.pairs, []
        return pairs

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if self._kept:
            if name == "sub":  # text within a code, such as a footnote: it must not melt into its neighbours
                self._text.append(" ")
            self._kept.append(name == "sub" or (name not in _NATIVE_CODES and self._kept[-1]))
        elif name == "tu":
            self._variants = {}
        elif name == "tuv":
            self._language = attributes.get(_XML_LANG) or attributes.get("lang") or ""
            if self._language and len(self.languages) < 1000:
                self.languages.add(self._language)
        elif name == "seg":
            self._text, self._text_length = [], 0
            self._kept.append(True)

    def data(self, text: str) -> None:
        if self._kept and self._kept[-1]:
            self._text_length += len(text)
            if self._text_length > MAX_LINE_BYTES:
                raise CorpusError(f"a segment is longer than {MAX_LINE_BYTES >> 20} MiB: split it", self._path)
            self._text.append(text)

    def end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        if self._kept:
            self._kept.pop()
            if name == "sub":
                self._text.append(" ")
            if not self._kept and self._language and len(self._variants) < 1000:
                self._variants.setdefault(self._language, "".join(self._text))
        elif name == "tu":
            source = find_language(self._wanted.source, self._variants, self._wanted.target)
            target = find_language(self._wanted.target, self._variants, self._wanted.source)
            if source is not None and target is not None:
                self.pairs.append((bytes_of(self._variants[source]), bytes_of(self._variants[target])))
            self._variants = {}
        elif name == "tuv":
            self._language = ""

    def close(self) -> None:
        """The parser asks for a result; there is none but the pairs."""


def read_po(path: Path, languages: Languages) -> Pairs:
    """Messages that are translated, and neither fuzzy nor obsolete."""
    content = _to_utf8(read_whole(path, MAX_CATALOGUE_BYTES), path)
    catalogue = _parse_po(content, path)
    _check_language(catalogue.metadata.get("Language", ""), languages, path)
    for entry in catalogue:
        if entry.obsolete or entry.fuzzy:
            continue
        forms = [entry.msgstr_plural[index] for index in sorted(entry.msgstr_plural)] or [entry.msgstr]
        yield from _messages(
            entry.msgid.encode("latin-1"),
            entry.msgid_plural.encode("latin-1"),
            [form.encode("latin-1") for form in forms],
        )


def _parse_po(content: bytes, path: Path) -> polib.POFile:
    """polib takes a string for a path if such a file exists, and splits it at every Unicode separator: so, a real file.

    It is read as Latin-1, a byte a character, so that bytes which are not UTF-8 come through for cleaning to count.
    """
    with TemporaryDirectory(prefix="dragoman-") as folder:
        copy = Path(folder, "messages.po")
        copy.write_bytes(content)
        try:
            return polib.pofile(str(copy), encoding="latin-1")
        except Exception as error:  # polib raises whatever its parsing stumbles over
            line = _PO_LINE.search(str(error))
            raise CorpusError(
                "is not a PO file that can be read: mend it there, as `msgfmt --check` shows",
                path,
                int(line[1]) if line else None,
            ) from None


def read_mo(path: Path, languages: Languages) -> Pairs:
    """Compiled catalogues. The two tables are checked before anything is copied, so that a hostile file costs nothing.

    Read here and not by polib, which trusts the tables and knows no bytes that aren't UTF-8.
    """
    content = read_whole(path, MAX_CATALOGUE_BYTES)
    if not content:
        return
    try:
        messages = list(zip(*_mo_tables(content), strict=True))
    except (struct.error, ValueError) as error:
        raise CorpusError(f"is not a sound MO file ({error}): compile it again with `msgfmt`", path) from None
    header = next((_slice(content, target) for source, target in messages if source[0] == 0), b"")
    _check_language(_header_field(header, b"Language"), languages, path)
    charset = _charset(header)
    for source, target in messages:
        if source[0] == 0:
            continue
        identity = _recode(_slice(content, source), charset, path).rpartition(b"\x04")[2]
        singular, _, plural = identity.partition(b"\0")
        yield from _messages(singular, plural, _recode(_slice(content, target), charset, path).split(b"\0"))


def _mo_tables(content: bytes) -> Iterator[list[tuple[int, int]]]:
    """Length and offset of every original, then of every translation."""
    order = "<" if content[:4] == struct.pack("<I", _MO_MAGIC) else ">"
    magic, revision, count, *offsets = struct.unpack_from(f"{order}5I", content)
    if magic != _MO_MAGIC:
        raise ValueError("it does not begin like one")
    if revision >> 16 > 1:
        raise ValueError(f"its revision {revision >> 16} is unknown")
    for offset in offsets:
        if offset + 8 * count > len(content):
            raise ValueError(f"its table of {count} messages passes its end")
        table = list(struct.iter_unpack(f"{order}II", content[offset : offset + 8 * count]))
        if any(begin + length > len(content) for length, begin in table):
            raise ValueError("a message passes its end")
        if sum(length for length, _ in table) > len(content):
            raise ValueError("its messages overlap")
        yield table


def _slice(content: bytes, entry: tuple[int, int]) -> bytes:
    length, begin = entry
    return content[begin : begin + length]


def _messages(singular: bytes, plural: bytes, forms: list[bytes]) -> Pairs:
    """The singular with the first form and the plural with the last; languages with more forms have them in between."""
    sides = [(singular, forms[0])]
    if plural:
        sides.append((plural, forms[-1]))
    for source, target in sides:
        if source and target:
            yield (
                bytes_of(source.decode("utf-8", "surrogateescape")),
                bytes_of(target.decode("utf-8", "surrogateescape")),
            )


def _check_language(stated: str, languages: Languages, path: Path) -> None:
    if stated and not same_language(stated, languages.target):
        raise CorpusError(
            f"wrong language: it translates into {stated}, not {languages.target}: name that language, or leave it out",
            path,
        )


def _header_field(header: bytes, name: bytes) -> str:
    field = re.search(rb"^" + name + rb":[ \t]*(.*)$", header, re.MULTILINE | re.IGNORECASE)
    return field[1].decode("latin-1").strip() if field else ""


def _charset(header: bytes) -> str:
    found = _CHARSET.search(header)
    return found[1].decode("latin-1").lower() if found else "utf-8"


def _to_utf8(content: bytes, path: Path) -> bytes:
    content = content.removeprefix(b"\xef\xbb\xbf")
    return _recode(content, _charset(content[: 1 << 16]), path)


def _recode(text: bytes, charset: str, path: Path) -> bytes:
    """UTF-8 stays as it is, sound or not; `CHARSET` is what an unfilled template says."""
    if charset in {"utf-8", "utf8", "ascii", "us-ascii", "charset"}:
        return text
    try:
        return text.decode(charset).encode("utf-8", "surrogatepass")
    except (LookupError, ValueError):
        raise CorpusError(f"is not in {charset} as its header says: convert it with `msgconv -t UTF-8`", path) from None

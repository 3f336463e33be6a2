"""Translation of files in their own format: plain text, PO catalogs, TMX translation memories."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lxml import etree

from dragoman.corpus.gettext_catalogs import InvalidPOError, load_po
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.tmx import INLINE_CODE_TAGS, XML_LANG

FORMATS = {"txt": "text/plain; charset=utf-8", "po": "text/x-gettext-translation", "tmx": "application/x-tmx+xml"}
"""Supported file extensions, with the content type of the response."""
PO_COMMENT = "Machine translation, not reviewed."
"""Translator comment that is added to each PO entry filled in."""
MAX_CODE_CHARACTERS = 35
"""Language codes in a file are compared up to this length."""

_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")
# Characters that XML does not allow. Models can generate any character.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class UnreadableError(Exception):
    """The file is not valid in the format of its extension. The message gives the reason and a remedy."""


@dataclass(frozen=True)
class Document:
    """A parsed file."""

    texts: list[str]
    """Texts to translate."""
    render: Callable[[list[str]], bytes]
    """The file with the translations of the texts; everything else is unchanged."""


def parse(content: bytes, extension: str, source: str, target: str) -> Document:
    if extension == "po":
        return _parse_po(content, target)
    if extension == "tmx":
        return _parse_tmx(content, source, target)
    return Document([_decode(content)], lambda translations: translations[0].encode())


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"The file is not UTF-8 (byte {error.start}): convert it to UTF-8.") from None


def _parse_po(content: bytes, target: str) -> Document:
    """Fill in untranslated and fuzzy entries, and mark them with a comment. Existing translations stay."""
    try:
        catalog = load_po(_decode(content).encode(), "utf-8")
    except InvalidPOError:
        raise UnreadableError("The file is not a valid PO catalog: check it with msgfmt.") from None
    plural_rule = _PLURALS.search(catalog.metadata.get("Plural-Forms", ""))
    plural_forms = int(plural_rule[1]) if plural_rule else 2
    catalog.metadata.setdefault("Language", target)
    entries = [entry for entry in catalog if not entry.obsolete and (entry.fuzzy or not entry.translated())]
    texts = []
    for entry in entries:
        texts += [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]

    def render(translations: list[str]) -> bytes:
        remaining = iter(translations)
        for entry in entries:
            singular = next(remaining)
            if entry.msgid_plural:
                plural = next(remaining)
                entry.msgstr_plural = {
                    form: singular if form == 0 and plural_forms > 1 else plural for form in range(plural_forms)
                }
            else:
                entry.msgstr = singular
            entry.tcomment = "\n".join(filter(None, [entry.tcomment, PO_COMMENT]))
        return str(catalog).encode()

    return Document(texts, render)


def _parse_tmx(content: bytes, source: str, target: str) -> Document:
    """Add a target variant to each unit that has none. Inline codes are not copied to the translation."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableError(f"The file is not well-formed XML ({error.msg}): check it with xmllint.") from None
    if root.find(".//{*}tu") is None and etree.QName(root).localname != "tu":
        raise UnreadableError("The file contains no translation units (tu): check that it is TMX.")
    incomplete = list(_units_without(target, source, root))

    def render(translations: list[str]) -> bytes:
        for (unit, _), translation in zip(incomplete, translations, strict=True):
            namespace = unit.tag.rpartition("tu")[0]
            variant = etree.SubElement(unit, f"{namespace}tuv", {XML_LANG: target, "creationid": "dragoman"})
            etree.SubElement(variant, f"{namespace}seg").text = _NOT_XML.sub("\ufffd", translation)
        return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8"))

    return Document([text for _, text in incomplete], render)


def _units_without(target: str, source: str, root: etree._Element) -> Iterator[tuple[etree._Element, str]]:
    """Units that have a source variant, but no target variant, with the text of the former."""
    for unit in root.iter("{*}tu"):  # Not as a list: building one would hold the GIL all the time.
        segments = {_language(variant): variant.find("{*}seg") for variant in unit.findall("{*}tuv")}
        original = next((seg for code, seg in segments.items() if same_language(code, source)), None)
        if original is not None and not any(same_language(code, target) for code in segments):
            yield unit, _text(original)


def _language(variant: etree._Element) -> str:
    return str(variant.get(XML_LANG) or variant.get("lang") or "")[:MAX_CODE_CHARACTERS]


def _text(segment: etree._Element) -> str:
    """Text of a segment, without inline codes of the original format."""
    text = segment.text or ""
    for child in segment:
        if isinstance(child.tag, str) and etree.QName(child).localname not in INLINE_CODE_TAGS:
            text += _text(child)
        text += child.tail or ""
    return text

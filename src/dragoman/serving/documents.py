"""Translation of files in their own format: plain text, PO catalogs, TMX translation memories."""

import re
from collections.abc import Awaitable, Callable

import polib
from lxml import etree

from dragoman.corpus.gettext_catalogs import InvalidPOError, load_po
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.tmx import INLINE_CODE_TAGS, XML_LANG

Translate = Callable[[str], Awaitable[str]]
FORMATS = {"txt": "text/plain; charset=utf-8", "po": "text/x-gettext-translation", "tmx": "application/x-tmx+xml"}
"""Supported file extensions, with the content type of the response."""
PO_COMMENT = "Machine translation, not reviewed."
"""Translator comment that is added to each PO entry filled in."""

_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")


class UnreadableError(Exception):
    """The file is not valid in the format of its extension. The message gives the reason and a remedy."""


async def translate_document(content: bytes, extension: str, source: str, target: str, translate: Translate) -> bytes:
    """Translate the text of a file; everything else stays unchanged."""
    if extension == "po":
        return await _translate_po(content, target, translate)
    if extension == "tmx":
        return await _translate_tmx(content, source, target, translate)
    return (await translate(_decode(content))).encode()


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"The file is not UTF-8 (byte {error.start}): convert it to UTF-8.") from None


async def _translate_po(content: bytes, target: str, translate: Translate) -> bytes:
    """Fill in untranslated and fuzzy entries, and mark them with a comment. Existing translations stay."""
    catalog = _parse_po(_decode(content))
    plural_rule = _PLURALS.search(catalog.metadata.get("Plural-Forms", ""))
    plural_forms = int(plural_rule[1]) if plural_rule else 2
    catalog.metadata.setdefault("Language", target)
    for entry in catalog:
        if entry.obsolete or (entry.translated() and not entry.fuzzy):
            continue
        if entry.msgid_plural:
            singular, plural = await translate(entry.msgid), await translate(entry.msgid_plural)
            entry.msgstr_plural = {
                form: singular if form == 0 and plural_forms > 1 else plural for form in range(plural_forms)
            }
        else:
            entry.msgstr = await translate(entry.msgid)
        entry.tcomment = "\n".join(filter(None, [entry.tcomment, PO_COMMENT]))
    return str(catalog).encode()


def _parse_po(text: str) -> polib.POFile:
    try:
        return load_po(text.encode(), "utf-8")
    except InvalidPOError:
        raise UnreadableError("The file is not a valid PO catalog: check it with msgfmt.") from None


async def _translate_tmx(content: bytes, source: str, target: str, translate: Translate) -> bytes:
    """Add a target variant to each unit that has none. Inline codes are not copied to the translation."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableError(f"The file is not well-formed XML ({error.msg}): check it with xmllint.") from None
    units = list(root.iter("{*}tu"))
    if not units:
        raise UnreadableError("The file contains no translation units (tu): check that it is TMX.")
    for unit in units:
        segments = {_language(variant): variant.find("{*}seg") for variant in unit.findall("{*}tuv")}
        original = next((seg for code, seg in segments.items() if same_language(code, source)), None)
        if original is None or any(same_language(code, target) for code in segments):
            continue
        namespace = unit.tag.rpartition("tu")[0]
        variant = etree.SubElement(unit, f"{namespace}tuv", {XML_LANG: target, "creationid": "dragoman"})
        etree.SubElement(variant, f"{namespace}seg").text = await translate(_text(original))
    return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8"))


def _language(variant: etree._Element) -> str:
    return str(variant.get(XML_LANG) or variant.get("lang") or "")


def _text(segment: etree._Element) -> str:
    """Text of a segment, without inline codes of the original format."""
    text = segment.text or ""
    for child in segment:
        if isinstance(child.tag, str) and etree.QName(child).localname not in INLINE_CODE_TAGS:
            text += _text(child)
        text += child.tail or ""
    return text

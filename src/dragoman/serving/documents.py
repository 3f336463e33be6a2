"""Files in, the same files out, translated: plain text, PO catalogues, TMX memories."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import polib
from lxml import etree

from dragoman.corpus.language_codes import same_language

Translate = Callable[[str], Awaitable[str]]
FORMATS = {"txt": "text/plain; charset=utf-8", "po": "text/x-gettext-translation", "tmx": "application/x-tmx+xml"}
"""What can be translated, by the end of a file's name, and the type of the answer."""
NOTE = "Translated by machine; not yet read by a person."

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_NATIVE_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")


class UnreadableError(Exception):
    """The file is not what its name says; the message says how."""


async def translate_document(content: bytes, form: str, source: str, target: str, translate: Translate) -> bytes:
    """A file of one of the formats, with everything but the text left as it is."""
    if form == "po":
        return await _translate_po(content, target, translate)
    if form == "tmx":
        return await _translate_tmx(content, source, target, translate)
    return (await translate(_decoded(content))).encode()


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"The file is not UTF-8 (byte {error.start}): convert it first.") from None


async def _translate_po(content: bytes, target: str, translate: Translate) -> bytes:
    """Fills in what has no translation yet, and says so at each; what people have translated stays."""
    catalogue = _parse_po(_decoded(content))
    forms = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    count = int(forms[1]) if forms else 2
    catalogue.metadata.setdefault("Language", target)
    for entry in catalogue:
        if entry.obsolete or (entry.translated() and not entry.fuzzy):
            continue
        if entry.msgid_plural:
            singular, plural = await translate(entry.msgid), await translate(entry.msgid_plural)
            entry.msgstr_plural = {form: singular if form == 0 and count > 1 else plural for form in range(count)}
        else:
            entry.msgstr = await translate(entry.msgid)
        entry.tcomment = "\n".join(filter(None, [entry.tcomment, NOTE]))
    return str(catalogue).encode()


def _parse_po(text: str) -> polib.POFile:
    """From a real file: polib takes a string for a path if there is such a file."""
    with TemporaryDirectory(prefix="dragoman-") as folder:
        copy = Path(folder, "messages.po")
        copy.write_text(text, encoding="utf-8", newline="")
        try:
            return polib.pofile(str(copy), encoding="utf-8")
        except Exception:  # polib raises whatever its parsing stumbles over
            raise UnreadableError("The file is not a PO catalogue that can be read: check it with msgfmt.") from None


async def _translate_tmx(content: bytes, source: str, target: str, translate: Translate) -> bytes:
    """Gives every unit a variant in the target language, if it has none. Inline codes stay in the source alone."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise UnreadableError(f"The file is not well-formed XML ({error.msg}): check it with xmllint.") from None
    units = list(root.iter("{*}tu"))
    if not units:
        raise UnreadableError("The file holds no translation units: is it TMX?")
    for unit in units:
        segments = {_language(variant): variant.find("{*}seg") for variant in unit.findall("{*}tuv")}
        original = next((seg for code, seg in segments.items() if same_language(code, source)), None)
        if original is None or any(same_language(code, target) for code in segments):
            continue
        namespace = unit.tag.rpartition("tu")[0]
        variant = etree.SubElement(unit, f"{namespace}tuv", {_XML_LANG: target, "creationid": "dragoman"})
        etree.SubElement(variant, f"{namespace}seg").text = await translate(_text(original))
    return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8"))


def _language(variant: etree._Element) -> str:
    return str(variant.get(_XML_LANG) or variant.get("lang") or "")


def _text(segment: etree._Element) -> str:
    """The words of a segment, without the codes of the program that it came from."""
    text = segment.text or ""
    for child in segment:
        if isinstance(child.tag, str) and etree.QName(child).localname not in _NATIVE_CODES:
            text += _text(child)
        text += child.tail or ""
    return text

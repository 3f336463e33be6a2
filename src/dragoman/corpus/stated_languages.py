"""The direction that a file itself states: TMX, XLIFF, PO, MO, and CSV with language codes above its columns."""

import re
from itertools import islice
from pathlib import Path

from lxml import etree

from dragoman.corpus.compression import read_blocks
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.xml_pairs import XML_LANG

CHECKED_BLOCKS = 16
"""Blocks of a file in which languages are looked for: 4 MiB."""
GETTEXT_SOURCE = "en"
"""The language of messages, unless a catalog states another: by convention programs are written in English."""
_LANGUAGE_FIELD = re.compile(rb'(?:^|")Language:[ \t]*([A-Za-z]{2,3}(?:[_-][A-Za-z]{2,4})?)', re.MULTILINE)
_SOURCE_FIELD = re.compile(rb'(?:^|")X-Source-Language:[ \t]*([A-Za-z]{2,3}(?:[_-][A-Za-z]{2,4})?)', re.MULTILINE)


def stated_languages(path: Path, file_format: str, encoding: str | None) -> tuple[str, str] | None:
    """The source and target codes that a file states; None if it states none, or more than two."""
    match file_format:
        case "tmx":
            codes = _languages_of_tmx(path)
        case "xliff":
            codes = _languages_of_xliff(path)
        case "po" | "mo":
            codes = _languages_of_catalog(path)
        case "csv":
            from dragoman.corpus.csv_format import languages_in_header

            return languages_in_header(path, encoding)
        case _:
            return None
    return (codes[0], codes[1]) if len(codes) == 2 else None


def _languages_of_tmx(path: Path) -> list[str]:
    """The languages of the first units; that of the header, or else of the first variant, is the source."""
    source: str | None = None
    codes: dict[str, None] = {}
    for name, attributes in _elements(path):
        if name == "header":
            source = attributes.get("srclang")
        elif name == "tuv" and (code := attributes.get(XML_LANG) or attributes.get("lang")):
            codes[_code(code)] = None
    found = list(codes)
    return found[::-1] if source and len(found) == 2 and same_language(found[1], source) else found


def _languages_of_xliff(path: Path) -> list[str]:
    directions = {
        (source, target): None
        for name, attributes in _elements(path)
        if name in ("xliff", "file")
        and (source := attributes.get("source-language") or attributes.get("srcLang"))
        and (target := attributes.get("target-language") or attributes.get("trgLang"))
    }
    return [_code(code) for code in next(iter(directions))] if len(directions) == 1 else []


def _languages_of_catalog(path: Path) -> list[str]:
    head = b"".join(islice(read_blocks(path), CHECKED_BLOCKS))
    target, source = _LANGUAGE_FIELD.search(head), _SOURCE_FIELD.search(head)
    if target is None:
        return []
    codes = [source[1].decode() if source else GETTEXT_SOURCE, target[1].decode()]
    return [_code(code) for code in codes] if not same_language(*codes) else []


def _code(code: str) -> str:
    return code.replace("_", "-")


def _elements(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Names and attributes of the elements at the beginning of a file, up to the first that is not well-formed."""
    found: list[tuple[str, dict[str, str]]] = []

    class Attributes:
        def start(self, tag: str, attributes: dict[str, str]) -> None:
            name = tag.rpartition("}")[2]
            if name in ("header", "tuv", "xliff", "file"):
                found.append((name, dict(attributes)))

        def close(self) -> None:
            """Required by the parser."""

    parser = etree.XMLParser(
        target=Attributes(), resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        for block in islice(read_blocks(path), CHECKED_BLOCKS):
            parser.feed(block)
    except etree.XMLSyntaxError:
        pass  # Reading the pairs reports it.
    return found

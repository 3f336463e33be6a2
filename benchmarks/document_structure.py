"""The structure of documents, read by the libraries of their formats: everything that a translation must not change."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docx
import polib
import pptx
import pysubs2
import webvtt
from lxml import html
from markdown_it import MarkdownIt
from odf.opendocument import load as load_odf
from translate.storage.tmx import tmxfile
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

TRANSLATED_PARTS = re.compile(
    r"word/(document|header\d*|footer\d*|comments)\.xml|ppt/(slides|notesSlides)/\w+\.xml|content\.xml"
)

Change = Callable[[str], str]


def describe(name: str, content: bytes, change: Change = str) -> Any:
    """What a library reads, with `change` made to each text that is translated, for comparison."""
    return _READERS[name](content, change)


def untranslated_parts(content: bytes) -> list[tuple[str, bytes]]:
    """Names and bytes of the parts of an archive that a translation leaves alone, in order."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [
            (entry.filename, b"" if TRANSLATED_PARTS.fullmatch(entry.filename) else archive.read(entry))
            for entry in archive.infolist()
        ]


def _describe_word(content: bytes, change: Change) -> Any:
    document = docx.Document(io.BytesIO(content))
    section = document.sections[0]
    blocks = [*document.iter_inner_content(), *section.header.paragraphs, *section.footer.paragraphs]
    cells = [cell.text for grid in document.tables for row in grid.rows for cell in row.cells]
    paragraphs = [block for block in blocks if hasattr(block, "runs")]
    elements = sorted(
        element.tag.rpartition("}")[2]
        for element in document.element.iter()
        if isinstance(element.tag, str) and element.tag.rpartition("}")[2] not in ("r", "t", "rPr", "b", "color")
    )
    return {
        "paragraphs": [(p.style.name, p.alignment, change(p.text), _formats(p, change)) for p in paragraphs],
        "links": [(link.address, change(link.text)) for p in paragraphs for link in p.hyperlinks],
        "cells": list(map(change, cells)),
        "images": len(document.inline_shapes),
        "comments": [(change(comment.text), comment.author) for comment in document.comments],
        "kept": [element.text for element in document.element.iter("{*}delText", "{*}instrText")],
        "elements": elements,
    }


def _formats(paragraph: Any, change: Change) -> list[tuple[Any, str]]:
    """Runs by their look: neighbours that look the same count as one."""
    runs = [
        ((run.bold, run.italic, run.underline, run.font.color.rgb if run.font.color.type else None), change(run.text))
        for run in paragraph.runs
    ]
    return [(look, "".join(text for _, text in group)) for look, group in groupby(runs, key=lambda run: run[0])]


def _describe_presentation(content: bytes, change: Change) -> Any:
    presentation = pptx.Presentation(io.BytesIO(content))

    def describe_shapes(shapes: Any) -> Iterator[Any]:
        for shape in shapes:
            yield shape.shape_type, shape.name, shape.left, shape.top
            if shape.has_text_frame:
                for paragraph in shape.text_frame.paragraphs:
                    yield paragraph.level, change(paragraph.text)
                    yield [(run.font.bold, run.hyperlink.address, change(run.text)) for run in paragraph.runs]
            if getattr(shape, "has_table", False):
                yield [change(cell.text) for row in shape.table.rows for cell in row.cells]
            if hasattr(shape, "shapes"):
                yield from describe_shapes(shape.shapes)

    return [
        (list(describe_shapes(slide.shapes)), change(slide.notes_slide.notes_text_frame.text))
        for slide in presentation.slides
    ]


def _describe_open_document(content: bytes, change: Change) -> Any:
    def describe_node(node: Any) -> Any:
        if node.nodeType == node.TEXT_NODE:
            return change(str(node))
        # Citations and names of authors are no text of the document.
        inner = str if node.qname[1] in ("note-citation", "creator", "page-number") else change
        children = [describe_node(child) if inner is change else str(child) for child in node.childNodes]
        texts_joined = [
            "".join(group) if is_text else list(group)
            for is_text, group in groupby(children, key=lambda child: isinstance(child, str))
        ]
        return node.qname, sorted((str(key), str(value)) for key, value in node.attributes.items()), texts_joined

    with TemporaryDirectory() as folder:
        path = Path(folder, "a.odt")
        path.write_bytes(content)
        return _merge_spans(describe_node(load_odf(str(path)).text))


def _merge_spans(node: Any) -> Any:
    """Join neighbouring spans of the same style."""
    name, attributes, parts = node
    merged: list[Any] = []
    for part in parts:
        for child in [part] if isinstance(part, str) else part:
            described = child if isinstance(child, str) else _merge_spans(child)
            is_alike = (
                merged and not isinstance(child, str) and merged[-1][:2] == described[:2] and child[0][1] == "span"
            )
            if is_alike:
                merged[-1] = (*described[:2], ["".join([*merged[-1][2], *described[2]])])
            else:
                merged.append(described)
    return name, attributes, merged


def _describe_markdown(content: bytes, change: Change) -> Any:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def describe_tokens(tokens: Any) -> Iterator[Any]:
        for token in tokens:
            if token.type in ("text", "softbreak"):
                yield "text", change(token.content or " ")
            elif token.type == "inline":
                pieces = list(describe_tokens(token.children))
                yield [
                    (kind, "".join(piece[1] for piece in group) if kind == "text" else list(group))
                    for kind, group in groupby(pieces, key=lambda piece: piece[0])
                ]
            else:
                text = change(token.content) if token.type == "image" else token.content
                yield token.type, token.tag, text, sorted(token.attrs.items())

    front, _, body = content.decode().partition("\n---\n")
    return front, list(describe_tokens(markdown.parse(body)))


def _describe_html(content: bytes, change: Change) -> Any:
    def describe_element(element: Any) -> Any:
        kept = str if element.tag in ("script", "style", "code") else change
        inner = [(describe_element(child), change(child.tail or "")) for child in element]
        return element.tag, sorted(element.attrib.items()), kept(element.text or ""), inner

    return describe_element(html.document_fromstring(content.decode()))


def _describe_subrip(content: bytes, change: Change) -> Any:
    return [
        (line.start, line.end, change(line.plaintext)) for line in pysubs2.SSAFile.from_string(content.decode(), "srt")
    ]


def _describe_webvtt(content: bytes, change: Change) -> Any:
    captions = webvtt.from_string(content.decode())
    styles = [found.text for found in captions.styles]
    return styles, [(c.start, c.end, c.identifier, change(c.text), change(c.voice or "")) for c in captions.captions]


def _describe_po(content: bytes, _: Change) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.po")
        path.write_bytes(content)
        return [
            (entry.msgctxt, entry.msgid, entry.msgid_plural, entry.occurrences, entry.flags)
            for entry in polib.pofile(str(path))
        ]


def _describe_tmx(content: bytes, _: Change) -> Any:
    return [(unit.getid(), unit.source, unit.getnotes()) for unit in tmxfile.parsestring(content).units]


def _describe_xliff(content: bytes, _: Change) -> Any:
    kind = Xliff2File if b'version="2' in content else xlifffile
    return [(unit.getid(), str(unit.source), unit.getnotes()) for unit in kind.parsestring(content).units]


def _describe_text(content: bytes, change: Change) -> Any:
    return change(content.decode())


_READERS: dict[str, Callable[[bytes, Change], Any]] = {
    "text": _describe_text, "Markdown": _describe_markdown, "HTML": _describe_html,
    "SubRip": _describe_subrip, "WebVTT": _describe_webvtt,
    "PO": _describe_po, "TMX": _describe_tmx, "XLIFF 1.2": _describe_xliff, "XLIFF 2.0": _describe_xliff,
    "Word": _describe_word, "PowerPoint": _describe_presentation, "OpenDocument": _describe_open_document,
}  # fmt: skip

"""Pairs from XML files, parsed as a stream: no tree is built, so memory stays bounded."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lxml import etree

from dragoman.corpus.compression import read_blocks
from dragoman.corpus.line_formats import MAX_LINE_BYTES
from dragoman.errors import CorpusError

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
Pair = tuple[bytes, bytes]
MAX_LISTED_LANGUAGES = 12
"""Languages or directions of a file that a message names."""


class SegmentText:
    """The text of a segment without its inline codes, as the parser comes to it."""

    def __init__(self, path: Path, code_tags: Collection[str]) -> None:
        """`code_tags` are the elements that hold markup of the original document format, not text."""
        self._path, self._code_tags = path, code_tags
        self._text: list[str] = []
        self._length = 0
        self._holds_text: list[bool] = []
        """For each open element of the segment: True if it holds text, False if it holds inline code."""

    @property
    def is_open(self) -> bool:
        """True inside of a segment."""
        return bool(self._holds_text)

    def open(self) -> None:
        self._text, self._length, self._holds_text = [], 0, [True]

    def start(self, name: str) -> None:
        """An element begins in the segment."""
        if name == "sub":  # Text inside a code, such as a footnote: separated from the text around it.
            self._text.append(" ")
        self._holds_text.append(name == "sub" or (name not in self._code_tags and self._holds_text[-1]))

    def data(self, text: str) -> None:
        if self._holds_text and self._holds_text[-1]:
            self._length += len(text)
            if self._length > MAX_LINE_BYTES:
                raise CorpusError(f"a segment is longer than {MAX_LINE_BYTES >> 20} MiB: split it", self._path)
            self._text.append(text)

    def end(self, name: str) -> str | None:
        """An element ends. The text, if it is the segment itself."""
        self._holds_text.pop()
        if name == "sub":
            self._text.append(" ")
        return None if self._holds_text else "".join(self._text)


class PairCollector(Protocol):
    """The target of an XML parser, which collects the pairs of finished units."""

    pairs: list[Pair]

    @property
    def why_none(self) -> str | None:
        """The problem with a file in which no pair was found, and its remedy; None if it may have none."""
        ...

    def start(self, tag: str, attributes: Mapping[str, str]) -> None: ...
    def data(self, text: str) -> None: ...
    def end(self, tag: str) -> None: ...
    def close(self) -> None: ...


def parse_pairs(path: Path, collector: PairCollector) -> Iterator[Pair]:
    """The pairs as they are found. A file without any is an error, unless its collector knows no reason.

    Neither a DTD nor an external entity is ever loaded, and the parser refuses internal entities that expand without
    bound.
    """
    parser = etree.XMLParser(target=collector, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    is_empty = True
    try:
        for block in read_blocks(path):
            parser.feed(block)
            for pair in _take(collector):
                is_empty = False
                yield pair
        parser.close()
    except etree.XMLSyntaxError as error:
        yield from _take(collector)
        # Some messages of libxml2 end with a line break.
        reason = " ".join((error.msg or "no XML at all").partition(", line")[0].split())
        raise CorpusError(
            f"is not well-formed XML ({reason}): export it again, or check it with `xmllint --noout`",
            path,
            error.lineno or 1,
        ) from None
    if is_empty and (problem := collector.why_none) is not None:
        raise CorpusError(problem, path)


def _take(collector: PairCollector) -> list[Pair]:
    pairs, collector.pairs = collector.pairs, []
    return pairs

"""Pairs from XML files, parsed as a stream: no tree is built, so memory stays bounded."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lxml import etree

from dragoman.corpus.compression import read_blocks
from dragoman.errors import CorpusError

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
Pair = tuple[bytes, bytes]


class PairCollector(Protocol):
    """The target of an XML parser, which collects the pairs of finished units."""

    pairs: list[Pair]

    def start(self, tag: str, attributes: Mapping[str, str]) -> None: ...
    def data(self, text: str) -> None: ...
    def end(self, tag: str) -> None: ...
    def close(self) -> None: ...


def parse_pairs(path: Path, collector: PairCollector) -> Iterator[Pair]:
    """The pairs as they are found.

    Neither a DTD nor an external entity is ever loaded, and the parser refuses internal entities that expand without
    bound.
    """
    parser = etree.XMLParser(target=collector, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        for block in read_blocks(path):
            parser.feed(block)
            yield from _take(collector)
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


def _take(collector: PairCollector) -> list[Pair]:
    pairs, collector.pairs = collector.pairs, []
    return pairs

"""Reader for TMX translation memories."""

from collections.abc import Mapping
from pathlib import Path

from dragoman.corpus.language_codes import find_language
from dragoman.corpus.line_formats import PairIterator, encode_line
from dragoman.corpus.sources import Languages
from dragoman.corpus.xml_pairs import XML_LANG, Pair, SegmentText, parse_pairs
from dragoman.errors import CorpusError

INLINE_CODE_TAGS = frozenset({"bpt", "ept", "ph", "it", "ut"})
"""Elements in a segment that hold markup of the original document format, not text."""
_MAX_LISTED_LANGUAGES = 12
_MAX_VARIANTS = 1000


def read_tmx(path: Path, languages: Languages) -> PairIterator:
    """The translation units that have both languages."""
    units = _TmxTarget(path, languages)
    found_pairs = False
    for pair in parse_pairs(path, units):
        found_pairs = True
        yield pair
    if not found_pairs:
        if not units.languages:
            raise CorpusError("contains no translation units: check that it is a TMX file", path)
        available = ", ".join(sorted(units.languages)[:_MAX_LISTED_LANGUAGES])
        raise CorpusError(
            f"wrong languages: no translation unit has both {languages.source} and {languages.target}: "
            f"choose two of {available} with --languages",
            path,
        )


class _TmxTarget:
    """The target of the XML parser: collects the pairs of finished translation units."""

    def __init__(self, path: Path, languages: Languages) -> None:
        self._wanted = languages
        self.languages: set[str] = set()
        self.pairs: list[Pair] = []
        self._variants: dict[str, str] = {}
        self._language = ""
        self._segment = SegmentText(path, INLINE_CODE_TAGS)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if self._segment.is_open:
            self._segment.start(name)
        elif name == "tu":
            self._variants = {}
        elif name == "tuv":
            self._language = attributes.get(XML_LANG) or attributes.get("lang") or ""
            if self._language and len(self.languages) < _MAX_VARIANTS:
                self.languages.add(self._language)
        elif name == "seg":
            self._segment.open()

    def data(self, text: str) -> None:
        self._segment.data(text)

    def end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        if self._segment.is_open:
            text = self._segment.end(name)
            if text is not None and self._language and len(self._variants) < _MAX_VARIANTS:
                self._variants.setdefault(self._language, text)
        elif name == "tu":
            source = find_language(self._wanted.source, self._variants, self._wanted.target)
            target = find_language(self._wanted.target, self._variants, self._wanted.source)
            if source is not None and target is not None:
                self.pairs.append((encode_line(self._variants[source]), encode_line(self._variants[target])))
            self._variants = {}
        elif name == "tuv":
            self._language = ""

    def close(self) -> None:
        """Required by the parser; the pairs are taken as they are found."""

"""Reader for TMX translation memories."""

from collections.abc import Mapping
from pathlib import Path

from dragoman.corpus.language_codes import find_language
from dragoman.corpus.line_formats import PairIterator, encode_line
from dragoman.corpus.sources import Languages
from dragoman.corpus.xml_pairs import MAX_LISTED_LANGUAGES, XML_LANG, Pair, SegmentText, parse_pairs

INLINE_CODE_TAGS = frozenset({"bpt", "ept", "ph", "it", "ut"})
"""Elements in a segment that hold markup of the original document format, not text."""
_MAX_VARIANTS = 1000


def read_tmx(path: Path, languages: Languages) -> PairIterator:
    """The translation units that have both languages."""
    return parse_pairs(path, _TmxTarget(path, languages))


class _TmxTarget:
    """The target of the XML parser: collects the pairs of finished translation units."""

    def __init__(self, path: Path, languages: Languages) -> None:
        self._wanted = languages
        self.languages: set[str] = set()
        self.pairs: list[Pair] = []
        self._variants: dict[str, str] = {}
        self._language = ""
        self._segment = SegmentText(path, INLINE_CODE_TAGS)

    @property
    def why_none(self) -> str:
        if not self.languages:
            return "contains no translation units: check that it is a TMX file"
        available = ", ".join(sorted(self.languages)[:MAX_LISTED_LANGUAGES])
        return (
            f"wrong languages: no translation unit has both {self._wanted.source} and {self._wanted.target}: "
            f"choose two of {available} with --languages"
        )

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

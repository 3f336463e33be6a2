"""Reader for XLIFF 1.2 and 2: the translated units of a localisation project."""

from collections.abc import Mapping
from pathlib import Path

from dragoman.corpus.language_codes import find_language
from dragoman.corpus.line_formats import PairIterator, encode_line
from dragoman.corpus.sources import Languages
from dragoman.corpus.xml_pairs import MAX_LISTED_LANGUAGES, XML_LANG, Pair, SegmentText, parse_pairs

UNIT_TAGS = frozenset({"trans-unit", "segment"})
"""The elements whose `source` and `target` are a pair: of version 1.2, and of version 2."""
CODE_TAGS = frozenset({"bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec"})
"""Elements in a segment that hold markup of the original document format, not text."""
UNTRANSLATED_STATES = frozenset({"new", "initial", "needs-translation", "needs-l10n"})


def read_xliff(path: Path, languages: Languages) -> PairIterator:
    """The units that are translated between the two languages, in either direction."""
    return parse_pairs(path, _XliffTarget(path, languages))


class _XliffTarget:
    """The target of the XML parser: collects the pairs of finished units."""

    def __init__(self, path: Path, languages: Languages) -> None:
        self._wanted = languages
        self.directions: set[str] = set()
        """The directions of translated files, whether wanted or not."""
        self.has_direction = False
        self.pairs: list[Pair] = []
        self._open: list[str] = []
        """The names of the open elements outside of segments' text."""
        self._codes = {"source": "", "target": ""}
        self._is_translated = True
        self._sides: dict[str, str] = {}
        self._side = ""
        self._segment = SegmentText(path, CODE_TAGS)

    @property
    def why_none(self) -> str | None:
        if not self.directions:
            return "contains no translated units: check that it is an XLIFF file with targets"
        if self.has_direction:
            return None
        available = ", ".join(sorted(self.directions)[:MAX_LISTED_LANGUAGES])
        return (
            f"wrong languages: it translates {available}, not {self._wanted.source} to {self._wanted.target}: "
            "change --languages, or leave the file out"
        )

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if self._segment.is_open:
            self._segment.start(name)
            return
        parent = self._open[-1] if self._open else ""
        self._open.append(name)
        if name == "xliff":
            self._codes = {"source": attributes.get("srcLang", ""), "target": attributes.get("trgLang", "")}
        elif name == "file" and "source-language" in attributes:
            self._codes = {
                "source": attributes["source-language"],
                "target": attributes.get("target-language", ""),
            }
        elif name in UNIT_TAGS:
            self._sides = {}
            self._is_translated = attributes.get("state") not in UNTRANSLATED_STATES
        elif name in ("source", "target") and parent in UNIT_TAGS:
            if code := attributes.get(XML_LANG):
                self._codes[name] = code
            if name == "target" and attributes.get("state") in UNTRANSLATED_STATES:
                self._is_translated = False
            self._side = name
            self._segment.open()

    def data(self, text: str) -> None:
        self._segment.data(text)

    def end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        if self._segment.is_open:
            if (text := self._segment.end(name)) is None:
                return
            self._sides.setdefault(self._side, text)
        self._open.pop()
        if name in UNIT_TAGS:
            self._finish_unit()

    def _finish_unit(self) -> None:
        if self._is_translated and self._sides.keys() == {"source", "target"}:
            codes = self._codes["source"], self._codes["target"]
            self.directions.add(" to ".join(code or "an unnamed language" for code in codes))
            # Without its target language, as editors write files of one language, a file is taken at its word.
            sides = {
                codes[0] or self._wanted.source: self._sides["source"],
                codes[1] or self._wanted.target: self._sides["target"],
            }
            source = find_language(self._wanted.source, sides, self._wanted.target)
            target = find_language(self._wanted.target, sides, self._wanted.source)
            if source is not None and target is not None:
                self.has_direction = True
                self.pairs.append((encode_line(sides[source]), encode_line(sides[target])))
        self._sides = {}

    def close(self) -> None:
        """Required by the parser; the pairs are taken as they are found."""

"""Projection of inline tags from a text to its translation.

A tag is placed around the words that translate those it was around: of all contiguous parts of the translation, the one
that gains most. A word gains as much as its links point into the tag, and costs as much as they point elsewhere. Tags
are placed from the outside to the inside, each within the one around it; a word belongs to only one of several tags
side by side. So every tag occurs once, and none cross, whatever the links are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from dragoman.decoding.alignment import AlignmentLink
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.text_units import Span, find_graphemes, find_units

WORD_VALUE, OTHER_VALUE = 1.0, 0.2
"""Values of words and of punctuation, whose links are less reliable."""
LINKED_COST, UNLINKED_COST = 0.5, 0.1
"""Costs of a word in a tag, in shares of its value. A word without links fits into any tag that goes on behind it."""
MAX_DEPTH = 32
"""Tags in more than so many others are not aligned: the time would be quadratic in their number."""


@dataclass
class _TagNode:
    """A tag of the source and those in it."""

    start: int
    end: int
    key: int
    children: list["_TagNode"] = field(default_factory=list)


def project_tags(source: MarkedText, translation: str, links: Iterable[AlignmentLink]) -> MarkedText:
    """The translation with the tags of the source, each once and nested as there."""
    if not source.tags:
        return MarkedText(translation)
    root = _nest(source)
    alignment = _UnitAlignment(source, translation, links)
    placed: list[InlineTag] = []
    pending = [(root, (0, len(translation)), 0)]
    while pending:
        node, span, depth = pending.pop()
        if node is not root:
            placed.append(InlineTag(*span, node.key))
        if depth < MAX_DEPTH:
            spans = _place_children(node, span, source.text, alignment)
        else:
            spans = [span, *[(span[1], span[1])] * (len(node.children) - 1)]
        ordered = sorted(zip(node.children, spans, strict=False), key=lambda child: child[1])
        pending += ((child, child_span, depth + 1) for child, child_span in reversed(ordered))
    return MarkedText(translation, tuple(placed))


def _nest(source: MarkedText) -> _TagNode:
    """The tags as a tree. A tag around nothing at the end of another counts as inside."""
    root = _TagNode(0, len(source.text), -1)
    path = [root]
    for tag in source.tags:
        start, end = trim(source.text, tag.start, tag.end)
        node = _TagNode(start, end, tag.key)
        while len(path) > 1 and (path[-1].end < start or (path[-1].end == start and start < end) or path[-1].end < end):
            path.pop()
        path[-1].children.append(node)
        path.append(node)
    return root


def trim(text: str, start: int, end: int) -> Span:
    """The span without spaces at its ends. A line break is no space."""
    while start < end and text[end - 1].isspace() and text[end - 1] != "\n":
        end -= 1
    while start < end and text[start].isspace() and text[start] != "\n":
        start += 1
    return start, end


class _UnitAlignment:
    """The units of a translation, and the places in the source that each is linked to."""

    def __init__(self, source: MarkedText, translation: str, links: Iterable[AlignmentLink]) -> None:
        self.source_units = find_units(source.text)
        self.units = find_units(translation)
        points = self._link_units(links)
        self._split_words = self._split_equal_words(source, translation, points)
        self._starts = [start for start, _ in self.units]
        self._totals = [sum(weight for _, weight in unit_points) for unit_points in points]
        self._points = sorted(
            (place, unit, weight) for unit, unit_points in enumerate(points) for place, weight in unit_points
        )
        self.values = [
            WORD_VALUE if any(map(str.isalnum, translation[start:end])) else OTHER_VALUE for start, end in self.units
        ]
        self.costs = [
            value * (LINKED_COST if total else UNLINKED_COST)
            for value, total in zip(self.values, self._totals, strict=True)
        ]
        self.cost_sums = [0.0, *accumulate(self.costs)]

    def _link_units(self, links: Iterable[AlignmentLink]) -> list[list[tuple[float, float]]]:
        """For each unit, the middles of the source spans that it is linked to, and the links' weights."""
        points: list[list[tuple[float, float]]] = [[] for _ in self.units]
        ends = [end for _, end in self.units]
        for link in links:
            unit = bisect_right(ends, link.target_start)
            while unit < len(self.units) and self.units[unit][0] < link.target_end:
                points[unit].append(((link.source_start + link.source_end - 1) / 2, link.weight))
                unit += 1
        return points

    def _split_equal_words(
        self, source: MarkedText, translation: str, points: list[list[tuple[float, float]]]
    ) -> frozenset[int]:
        """Replace units that equal a source word with a tag inside, as in H<sub>2</sub>O, by their characters.

        Returns the starts of these source words.
        """
        borders = sorted({border for tag in source.tags for border in (tag.start, tag.end)})
        equal: dict[str, list[int]] = {}
        for unit, (start, end) in enumerate(self.units):
            equal.setdefault(translation[start:end], []).append(unit)
        split: dict[int, int] = {}
        for start, end in self.source_units:
            candidates = equal.get(source.text[start:end])
            if candidates and bisect_left(borders, end) > bisect_right(borders, start):
                linked = [unit for unit in candidates if any(start <= place < end for place, _ in points[unit])]
                unit = (linked or candidates)[0]
                candidates.remove(unit)
                split[unit] = start
        for unit in sorted(split, reverse=True):
            start, end = self.units[unit]
            graphemes = find_graphemes(translation, start, end)
            self.units[unit : unit + 1] = graphemes
            points[unit : unit + 1] = [[(split[unit] + first - start, 1.0)] for first, _ in graphemes]
        return frozenset(split.values())

    def units_in(self, span: Span) -> tuple[int, int]:
        """First unit in a span, and the first behind it."""
        return bisect_left(self._starts, span[0]), bisect_left(self._starts, span[1])

    def shares(self, start: int, end: int, first: int, last: int) -> dict[int, float]:
        """The share of links into a part of the source, of each unit from `first` to before `last` that has some."""
        sums: dict[int, float] = {}
        for _, unit, weight in self._points[bisect_left(self._points, (start,)) : bisect_left(self._points, (end,))]:
            if first <= unit < last:
                sums[unit] = sums.get(unit, 0.0) + weight
        return {unit: weight / self._totals[unit] for unit, weight in sums.items() if weight}

    def whole_words(self, start: int, end: int) -> Span:
        """A part of the source, with the rest of the words at its ends, unless they are split in the translation."""
        first = max(bisect_left(self.source_units, (start + 1,)) - 1, 0)
        last = bisect_left(self.source_units, (end,)) - 1
        first_start, last_start, last_end = self.source_units[first][0], *self.source_units[last]
        if first_start not in self._split_words:
            start = min(start, first_start)
        return start, end if last_start in self._split_words else max(end, last_end)

    def most_linked(self, shares: dict[int, float]) -> int:
        return max(shares, key=lambda unit: (shares[unit] * self.values[unit], -unit))


def _place_children(node: _TagNode, span: Span, text: str, alignment: _UnitAlignment) -> list[Span]:
    """Spans of the tags directly in a tag that has the given span."""
    first, last = alignment.units_in(span)
    if first == last:
        return [(span[0], span[0])] * len(node.children)
    inner = alignment.units[first][0], alignment.units[last - 1][1]
    around = trim(text, node.start, node.end)
    filled = [child for child in node.children if child.start < child.end]
    if any((child.start, child.end) == around for child in filled):
        spans = {child.key: inner for child in filled}
    else:
        spans = _place_side_by_side(filled, alignment, first, last)
    taken = sorted(spans.values())
    for child in node.children:
        if child.key not in spans:
            place = _place_between(child.start, around, text, alignment, first, last)
            spans[child.key] = _outside(place, taken)
    return [spans[child.key] for child in node.children]


def _place_side_by_side(
    children: Sequence[_TagNode], alignment: _UnitAlignment, first: int, last: int
) -> dict[int, Span]:
    """Spans of tags by key; a tag to which no unit belongs is left out."""
    owners: dict[int, tuple[float, float, int]] = {}
    for child in children:
        # A tag around a part of a word has few links of its own, or none: it takes those of the word. Its own ones
        # decide between the tags of one word.
        shares = alignment.shares(*alignment.whole_words(child.start, child.end), first, last)
        own = alignment.shares(child.start, child.end, first, last)
        for unit, share in shares.items():
            claim = share, own.get(unit, 0.0), child.key
            owners[unit] = max(owners.get(unit, claim), claim, key=lambda owner: owner[:2])
    ranges: dict[int, list[tuple[float, int, int]]] = {}
    for key, run in groupby(sorted(owners), key=lambda unit: owners[unit][2]):
        ranges.setdefault(key, []).append(_best_range([(unit, owners[unit][0]) for unit in run], alignment))
    best = {key: max(found, key=lambda scored: scored[0]) for key, found in ranges.items()}
    return {key: (alignment.units[begin][0], alignment.units[end][1]) for key, (_, begin, end) in best.items()}


def _best_range(shares: Sequence[tuple[int, float]], alignment: _UnitAlignment) -> tuple[float, int, int]:
    """The range of units with the highest score, of units with their shares; score, first and last unit.

    Where no range has a positive score, it is the unit with the most links.
    """
    best, score = (0.0, 0, 0), 0.0
    begin = previous = shares[0][0]
    for unit, share in shares:
        gain = alignment.values[unit] * share - alignment.costs[unit]
        extended = score + gain - (alignment.cost_sums[unit] - alignment.cost_sums[previous + 1])
        score, begin = (extended, begin) if unit > previous and extended >= gain else (gain, unit)
        previous = unit
        if (score, unit - begin) > (best[0], best[2] - best[1]):
            best = score, begin, unit
    if best[0] > 0:
        return best
    unit = alignment.most_linked(dict(shares))
    return alignment.values[unit] * dict(shares)[unit] - WORD_VALUE, unit, unit


def _place_between(place: int, around: Span, text: str, alignment: _UnitAlignment, first: int, last: int) -> int:
    """Place of a single tag: beside the word that it was beside, and at the start or end if it was there."""
    units = alignment.source_units
    behind = bisect_left(units, (place,))
    before, after = behind - 1, behind
    if before < 0 or units[before][0] < around[0]:
        return alignment.units[first][0]
    if after == len(units) or units[after][1] > around[1]:
        return alignment.units[last - 1][1]
    touches_next = text[place - 1].isspace() and not text[place].isspace()
    for neighbour in (after, before) if touches_next else (before, after):
        if shares := alignment.shares(*units[neighbour], first, last):
            start, end = alignment.units[alignment.most_linked(shares)]
            return start if neighbour == after else end
    return alignment.units[last - 1][1]


def _outside(place: int, spans: Sequence[Span]) -> Span:
    """An empty span at a place, or at the nearest end of the span that the place is in, of several in order."""
    before = bisect_left(spans, (place,)) - 1
    if before >= 0 and place < spans[before][1]:
        start, end = spans[before]
        place = start if place - start < end - place else end
    return place, place

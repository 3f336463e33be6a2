"""Tests of the projection of tags."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.alignment import AlignmentLink
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.tag_projection import project_tags
from dragoman.documents.text_units import find_graphemes, find_units

WORDS = ["book", "H2O", "the", "été", "日本", "👩‍🔧", "e\u0301a", "a", "don't", ",", ".", "\n", "🇩🇪🇫🇷"]
TEXTS = st.lists(st.sampled_from([*WORDS, " ", "  "]), max_size=12).map("".join) | st.text(max_size=20)


def mark(markup: str) -> MarkedText:
    """A marked text of words with one-letter tags; `<x/>` is a single tag. The key of a tag is its letter's code."""
    text = ""
    tags: list[tuple[int, int | None, int]] = []
    for closes, letter, is_single, words in re.findall(r"<(/?)(\w)(/?)>|([^<]+)", markup):
        text += words
        if closes:
            index = next(index for index, tag in enumerate(tags) if tag[2] == ord(letter))
            tags[index] = tags[index][0], len(text), tags[index][2]
        elif letter:
            tags.append((len(text), len(text) if is_single else None, ord(letter)))
    return MarkedText(text, tuple(InlineTag(start, end or start, key) for start, end, key in tags))


def unmark(marked: MarkedText) -> str:
    out, position = "", 0
    open_tags: list[InlineTag] = []
    for tag in (*marked.tags, InlineTag(len(marked.text) + 1, len(marked.text) + 1, 0)):
        while open_tags and open_tags[-1].end <= tag.start:
            closed = open_tags.pop()
            out += f"{marked.text[position : closed.end]}</{chr(closed.key)}>"
            position = closed.end
        out += marked.text[position : tag.start]
        position = tag.start
        if tag.key:
            out += f"<{chr(tag.key)}>"
            open_tags.append(tag)
    return re.sub(r"<(\w)></\1>", r"<\1/>", out)


def word_links(source: str, target: str, pairs: str) -> list[AlignmentLink]:
    """Links of words by their numbers, as in "0-1 1-0"."""
    sources, targets = find_units(source), find_units(target)
    numbers = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
    return [AlignmentLink(*sources[first], *targets[second]) for first, second in numbers]


def project(source: str, target: str, pairs: str) -> str:
    marked = mark(source)
    return unmark(project_tags(marked, target, word_links(marked.text, target, pairs)))


@pytest.mark.parametrize(
    ("source", "target", "pairs", "expected"),
    [
        ("a <b>red</b> book", "ein rotes Buch", "0-0 1-1 2-2", "ein <b>rotes</b> Buch"),
        ("today <b>he</b> <i>reads</i>", "heute liest er", "0-0 1-2 2-1", "heute <i>liest</i> <b>er</b>"),
        ("<b>a red book</b>", "ein rotes Buch", "", "<b>ein rotes Buch</b>"),
        ("<b><i>a</i> red</b> book", "ein rotes Buch", "0-0 1-1 2-2", "<b><i>ein</i> rotes</b> Buch"),
        ("he <b>has seen</b> it", "er hat es gesehen", "0-0 1-1 2-3 3-2", "er <b>hat es gesehen</b>"),
        ("he <b>has seen</b> a red book", "er hat ein rotes Buch gesehen", "0-0 1-1 2-5 3-2 4-3 5-4",
         "er <b>hat</b> ein rotes Buch gesehen"),
        ("he <b>has seen</b> <i>it</i>", "er hat es gesehen", "0-0 1-1 2-3 3-2", "er <b>hat</b> <i>es</i> gesehen"),
        ("a <b>book </b>is", "ein Buch ist", "0-0 1-1 2-2", "ein <b>Buch</b> ist"),
        ("<x/>a book", "Buch ein", "0-1 1-0", "<x/>Buch ein"),
        ("a book<x/>", "Buch ein", "0-1 1-0", "Buch ein<x/>"),
        ("a <x/>red book", "ein Buch rotes", "0-0 1-2 2-1", "ein Buch <x/>rotes"),
        ("a red<x/> book", "rotes ein Buch", "0-1 1-0 2-2", "rotes<x/> ein Buch"),
        ("a <b>red<x/></b> book", "ein rotes Buch", "0-0 1-1 2-2", "ein <b>rotes</b><x/> Buch"),
        ("H<s>2</s>O flows", "es fließt H2O", "0-2 1-1", "es fließt H<s>2</s>O"),
        ("b<b>oo</b>k", "Buch", "0-0", "<b>Buch</b>"),
        ("I<b>s</b> he", "Ist er", "0-0 1-1", "<b>Ist</b> er"),
        ("<b>a</b><i>b</i>c", "abc", "0-0", "<b>a</b><i>b</i>c"),
        ("<b>Stop</b>, he says.", "Halt, sagt er.", "0-0 1-1 2-3 3-2 4-4", "<b>Halt</b>, sagt er."),
        ("he says <b>Stop!</b>", "er sagt Halt!", "0-0 1-1 2-2 3-3", "er sagt <b>Halt!</b>"),
        ("", "", "", ""),
        ("<b> </b>", " ", "", "<b/> "),
        ("a<x/><y/> b", "A B", "0-0 1-1", "A<x/><y/> B"),
    ],
)  # fmt: skip
def test_tags_are_put_around_the_words_that_translate_theirs(
    source: str, target: str, pairs: str, expected: str
) -> None:
    assert project(source, target, pairs) == expected


@given(st.integers(0, 4), st.integers(1, 5))
def test_a_tag_around_a_part_of_a_word_is_put_around_its_translation(start: int, length: int) -> None:
    source = MarkedText("the man reads it", (InlineTag(0, 7, 0), InlineTag(8 + start, min(8 + start + length, 13), 1)))
    # The model reads the end of the word as a token of its own, which says little, and the verb depends on its subject.
    links = [
        AlignmentLink(0, 3, 0, 3), AlignmentLink(4, 7, 4, 8), AlignmentLink(8, 12, 9, 14, 0.6),
        AlignmentLink(12, 13, 9, 14, 0.02), AlignmentLink(4, 7, 9, 14, 0.3), AlignmentLink(14, 16, 15, 17),
    ]  # fmt: skip
    assert [(tag.start, tag.end) for tag in project_tags(source, "der Mann liest es", links).tags] == [(0, 8), (9, 14)]


def test_tags_around_parts_of_one_word_share_the_words_of_its_translation() -> None:
    source = MarkedText("sunflower", (InlineTag(0, 3, 0), InlineTag(3, 9, 1)))
    links = [AlignmentLink(3, 9, 0, 5), AlignmentLink(0, 3, 10, 15)]
    tags = {tag.key: (tag.start, tag.end) for tag in project_tags(source, "fleur du soleil", links).tags}
    assert tags == {0: (9, 15), 1: (0, 5)}


def test_a_tag_without_any_linked_word_stays_a_tag() -> None:
    assert project("a <b>red</b> book", "Buch", "2-0") in ("<b/>Buch", "Buch<b/>", "<b>Buch</b>")


@st.composite
def marked_texts(draw: st.DrawFn) -> MarkedText:
    text = draw(TEXTS)
    tags: list[InlineTag] = []

    def add(start: int, end: int, depth: int) -> None:
        for _ in range(draw(st.integers(0, 2))):
            first = draw(st.integers(start, end))
            last = draw(st.integers(first, end))
            tags.append(InlineTag(first, last, len(tags)))
            if depth < 3:
                add(first, last, depth + 1)
            start = last

    add(0, len(text), 0)
    return MarkedText(text, tuple(tags))


@st.composite
def projections(draw: st.DrawFn) -> tuple[MarkedText, MarkedText]:
    source, target = draw(marked_texts()), draw(TEXTS)
    positions, target_positions = st.integers(0, len(source.text)), st.integers(0, len(target))
    link = st.builds(AlignmentLink, positions, positions, target_positions, target_positions, st.floats(0, 1))
    return source, project_tags(source, target, draw(st.lists(link, max_size=8)))


@given(projections())
def test_no_tag_is_lost_doubled_or_crossed_whatever_the_links(pair: tuple[MarkedText, MarkedText]) -> None:
    source, target = pair
    assert sorted(tag.key for tag in target.tags) == sorted(tag.key for tag in source.tags)
    for index, tag in enumerate(target.tags):
        assert 0 <= tag.start <= tag.end <= len(target.text)
        for later in target.tags[index + 1 :]:
            assert tag.start <= later.start, "tags are in order"
            assert later.start >= tag.end or later.end <= tag.end, "tags do not cross"


@given(projections())
def test_a_tag_stays_in_the_tag_around_it(pair: tuple[MarkedText, MarkedText]) -> None:
    source, target = pair
    placed = {tag.key: tag for tag in target.tags}
    order = {tag.key: index for index, tag in enumerate(target.tags)}
    for index, outer in enumerate(source.tags):
        for inner in source.tags[index + 1 :]:
            if source.text[inner.start : inner.end].strip() and outer.start <= inner.start and inner.end <= outer.end:
                assert placed[outer.key].start <= placed[inner.key].start
                assert placed[inner.key].end <= placed[outer.key].end
                assert order[outer.key] < order[inner.key]


@given(projections())
def test_a_tag_has_no_space_at_its_ends_and_splits_only_words_that_were_split(
    pair: tuple[MarkedText, MarkedText],
) -> None:
    source, target = pair
    grapheme_bounds = {0, len(target.text), *(bound for span in find_graphemes(target.text) for bound in span)}
    borders = {border for tag in source.tags for border in (tag.start, tag.end)}
    split = {source.text[start:end] for start, end in find_units(source.text) if any(start < b < end for b in borders)}
    for tag in target.tags:
        assert {tag.start, tag.end} <= grapheme_bounds
        inside = target.text[tag.start : tag.end]
        assert inside.strip(" ") == inside
        for start, end in find_units(target.text):
            for border in (tag.start, tag.end):
                assert not start < border < end or target.text[start:end] in split

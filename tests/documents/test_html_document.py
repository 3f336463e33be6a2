"""Tests of HTML documents."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.alignment import AlignmentLink
from dragoman.documents.html_document import HtmlDocument, visible_text
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.tag_projection import project_tags

FRAGMENTS = [
    "<b>", "</b>", "<i class='x > y'>", "</i>", '<a href="?a=1&amp;b=<2>">', "</a>", "<br>", "<br/>", "<img alt=x>",
    "<p>", "</p>", "<td>", "<!-- a <b> c -->", "<!-->", "<!doctype html>", "<?php x > y ?>", "</>", "<script>a<b</script>",
    "<code>", "</code>", "<pre> x </pre>", "<span translate=no>Name</span>", "&amp;", "&lt;b&gt;", "&nbsp;", "&copy", "<",
    " < ", "word", "two words", ". Next", " ", "\n  ", "日本語", "e\u0301", "<style>b{}</style>", "<svg><text>x</svg>",
    "<b", "<a b='", "<!--", "<script>", "H<sub>2</sub>O", "</b", "<B>", "</B>",
]  # fmt: skip
PAGES = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
TAG = re.compile(r"<!-->|<!--.*?(?:-->|$)|</?[a-zA-Z](?:\"[^\"]*\"|'[^']*'|[^'\">])*>", re.DOTALL)


def reverse_words(segment: MarkedText) -> MarkedText:
    """A stand-in for a translation whose words have the reverse order."""
    words = list(re.finditer(r"[^\s]+", segment.text))
    target, links = "", []
    for word in reversed(words):
        target += " " * bool(target)
        links.append(AlignmentLink(word.start(), word.end(), len(target), len(target) + len(word[0])))
        target += word[0].upper()
    return project_tags(segment, target, links)


def translate(page: str) -> str:
    document = HtmlDocument(page)
    return document.render([reverse_words(segment) for segment in document.segments])


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>one <b>two</b> three</p>", "<p>THREE <b>TWO</b> ONE</p>"),
        ("<b>one two</b>", "<b>TWO ONE</b>"),
        ('<a href="x?a=1&amp;b=2">one</a> two', 'TWO <a href="x?a=1&amp;b=2">ONE</a>'),
        ("<p>one<p>two three", "<p>ONE<p>THREE TWO"),
        ("one &amp; <i>two</i> &lt;3", "&lt;3 <i>TWO</i> &amp; ONE"),
        ("\n <ul>\n <li> one\n two </li></ul>", "\n <ul>\n <li> TWO ONE </li></ul>"),
        ("<script>if (a < b) c('one two')</script>", "<script>if (a < b) c('one two')</script>"),
        ("<pre>one two</pre><textarea>one two</textarea>", "<pre>one two</pre><textarea>one two</textarea>"),
        # A single tag stays beside the word that follows it.
        ("one <code>a b</code> two", "<code>a b</code> TWO ONE"),
        ('one <span translate="no">a b</span> two', '<span translate="no">a b</span> TWO ONE'),
        ('<p class="x notranslate">one two</p>three', '<p class="x notranslate">one two</p>THREE'),
        ("one <!-- a b --> two", "<!-- a b -->TWO ONE"),
        ("<title>one two</title>", "<title>TWO ONE</title>"),
        ('<img alt="one two">', '<img alt="one two">'),
        ("1 <b>2</b> 3", "1 <b>2</b> 3"),
        ("<a><img></a> one two", "<a><img></a> TWO ONE"),
        ("one <b>two", "<b>TWO ONE"),
        ("one</b> two", "TWO ONE</b>"),
        ("a < b", "B &lt; A"),
        ("one <b", "ONE <b"),
    ],
)  # fmt: skip
def test_only_text_is_translated(page: str, expected: str) -> None:
    assert translate(page) == expected


def test_crossed_tags_keep_their_order() -> None:
    translated = translate("one <b>two <i>three</b> four</i> five")
    assert translated.index("<i>") < translated.index("</i>")
    assert translated.index("<b>") < translated.index("</b>")


def test_a_line_break_separates_sentences_within_a_tag() -> None:
    [segment] = HtmlDocument("<p>a <b>one<br>two</b></p>").segments
    assert segment.text == "a one\ntwo"
    assert HtmlDocument("<p>a <b>one<br>two</b></p>").render([segment]) == "<p>a <b>one<br>two</b></p>"


def test_no_break_spaces_are_kept() -> None:
    document = HtmlDocument("10&nbsp;km <b>far</b>")
    assert document.segments[0].text == "10 km far"
    assert document.render(document.segments) == "10&nbsp;km <b>far</b>"


def test_visible_text_has_no_markup() -> None:
    assert visible_text("<p>one <b>t</b>wo<p>three<script>four</script>") == "one two\nthree"


@given(PAGES)
def test_an_untranslated_page_keeps_its_markup_and_text(page: str) -> None:
    document = HtmlDocument(page)
    rendered = document.render(document.segments)
    assert Counter(TAG.findall(rendered)) == Counter(TAG.findall(page))
    again = HtmlDocument(rendered)
    assert [segment.text for segment in again.segments] == [segment.text for segment in document.segments]


@given(PAGES)
def test_no_tag_is_lost_or_doubled_in_any_page(page: str) -> None:
    assert Counter(TAG.findall(translate(page))) == Counter(TAG.findall(page))


def unclosed(page: str) -> Counter[str]:
    """Tags without counterpart, as a browser's tree builder would find them by name."""
    missing: Counter[str] = Counter()
    opened: list[str] = []
    for tag in TAG.findall(page):
        name = re.sub("[^a-z]", "", tag.split()[0].lower())
        if tag.startswith("<!--") or name in ("br", "img"):
            continue
        if not tag.startswith("</"):
            opened.append(name)
        elif name in opened:
            while opened[-1] != name:
                missing[opened.pop()] += 1
            opened.pop()
        else:
            missing["/" + name] += 1
    return missing + Counter(opened)


@given(PAGES)
def test_broken_markup_is_never_more_broken_than_before(page: str) -> None:
    assert unclosed(translate(page)).total() <= unclosed(page).total()


@given(st.text("<>/!-=\"' abp&;\n", max_size=30) | st.text(max_size=30))
def test_any_text_is_a_page(page: str) -> None:
    document = HtmlDocument(page)
    assert all(segment.text.strip() for segment in document.segments)
    translate(page)

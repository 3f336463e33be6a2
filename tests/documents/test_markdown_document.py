"""Markdown: text is translated, everything else of the source stays."""

import re

import pytest
from benchmarks.documents import to_capitals
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dragoman.documents.markdown_document import parse_markdown
from dragoman.documents.marked_text import MarkedText


def in_capitals(source: str) -> str:
    document = parse_markdown(source.encode())
    return document.render([to_capitals(segment) for segment in document.segments]).decode()


def translated(source: str, *translations: str) -> str:
    return parse_markdown(source.encode()).render([MarkedText(text) for text in translations]).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# A *title* ##\n", "# A *TITLE* ##\n"),
        ("Title\n=====\n", "TITLE\n=====\n"),
        ("> one\n> two\n", "> ONE\n> TWO\n"),
        ("1. one\n   two\n", "1. ONE\n   TWO\n"),
        ("- [ ] to do\n- [x] done\n* [X] *too*\n", "- [ ] TO DO\n- [x] DONE\n* [X] *TOO*\n"),
        ("1. [ ]\n   to do\n2. [x]\n", "1. [ ]\n   TO DO\n2. [x]\n"),
        ("[x] no task\n\n- a\n\n  [x] nor this\n", "[X] NO TASK\n\n- A\n\n  [X] NOR THIS\n"),
        ("a term[^x1], *another*[^b]\n", "A TERM[^x1], *ANOTHER*[^b]\n"),
        ("a[^x]\n\n[^x]: word\n", "A[^x]\n\n[^x]: WORD\n"),
        ("[^x]: a note\nof lines\n[^y]: another[^x]\n", "[^x]: A NOTE\nOF LINES\n[^y]: ANOTHER[^x]\n"),
        ("text\n[^x]:\n    a note\n", "TEXT\n[^x]:\n    A NOTE\n"),
        ("> [^x]: a note\n", "> [^x]: A NOTE\n"),
        ("- [^x]: a note\n- [^x] is b\n", "- [^x]: A NOTE\n- [^x] IS B\n"),
        ("a `code b` c\n", "A `code b` C\n"),
        ("see [the *text*](http://a.b/c_d 'title').\n", "SEE [THE *TEXT*](http://a.b/c_d 'title').\n"),
        ("an ![image of](a.png) it\n", "AN ![IMAGE OF](a.png) IT\n"),
        ("![image](a.png)\n", "![IMAGE](a.png)\n"),
        ("see [it]\n\n[it]: http://a\n", "SEE [IT][it]\n\n[it]: http://a\n"),
        ("see [it][]\n\n[it]: http://a\n", "SEE [IT][it]\n\n[it]: http://a\n"),
        ("see [text][it]\n\n[it]: http://a\n", "SEE [TEXT][it]\n\n[it]: http://a\n"),
        ("<https://a.b> is <b>bold</b><br>x\n", "<https://a.b> IS <b>BOLD</b><br>X\n"),
        ("one\\\ntwo  \nthree\n", "ONE\\\nTWO  \nTHREE\n"),
        ("a \\* b snake_case 2 * 3\n", "A \\* B SNAKE_CASE 2 \\* 3\n"),
        ("\\![a](b)\n", "\\![A](b)\n"),
        ("one \\ two\n", "ONE \\ TWO\n"),
        ("```word``\n", "\\`\\`\\`WORD``\n"),
        ("| a | b \\| c |\n|---|---|\n| 1 | `x` |\n", "| A | B \\| C |\n|---|---|\n| 1 | `x` |\n"),
        ("a | b\n--|--\nc | d\n", "A | B\n--|--\nC | D\n"),
        ("```\ncode\n```\n\n    code\n", "```\ncode\n```\n\n    code\n"),
        ("<div>\nhtml\n</div>\n", "<div>\nhtml\n</div>\n"),
        ("---\ntitle: x\n---\ntext\n", "---\ntitle: x\n---\nTEXT\n"),
        ("+++\ntitle = 1\n+++\ntext", "+++\ntitle = 1\n+++\nTEXT"),
        ("text\r\n\r\n* item\r\n", "TEXT\r\n\r\n* ITEM\r\n"),
    ],
)
def test_only_text_changes(source, expected):
    assert in_capitals(source) == expected


def test_characters_with_a_meaning_are_escaped_in_a_translation():
    assert translated("text\n", "*a* [b] `c` <d> \\ _e_") == "\\*a\\* \\[b\\] \\`c\\` \\<d> \\\\ \\_e\\_\n"
    assert translated("snake_case\n", "schlange_n_wort") == "schlange_n_wort\n"
    assert translated("text\n", "&amp; & co") == "\\&amp; & co\n"


@pytest.mark.parametrize("start", ["# a", "1. a", "2) a", "- a", "+ a", "> a", "---", "===", "~~~", "```", "* * *"])
def test_a_translation_begins_no_other_block(start):
    for source in ("text\n", "> text\n", "- text\n", "some long\ntext of lines\n"):
        rendered = translated(source, f"x {start}" if "\n" in source[:-1] else start)
        kinds = [[token.type for token in MarkdownIt("commonmark").parse(text)] for text in (source, rendered)]
        assert kinds[0] == kinds[1], rendered


def test_a_paragraph_keeps_its_number_of_lines_at_most():
    assert translated("> one two\n> three\n", "eins zwei drei vier") == "> eins zwei\n> drei vier\n"
    assert translated("one two\nthree\n", "eins") == "eins\n"


def test_footnotes_and_tasks_stay_whatever_a_model_writes():
    assert translated("- [x] A term[^1].\n", "B [x] c[^2]") == "- [x] B \\[x\\] c\\[^2\\]\n"


INLINE = st.sampled_from(
    ["word", "two words", " ", "*", "**", "_", "`", "``", "[", "]", "](", ")", "](a)", "![", "<b>", "</b>", "\\", "\n",
     "  \n", "&amp;", "|", "~~", "http://a", "<http://a>", "#", "> ", "- ", "1. ", "\n\n", "[a]: b\n", "\t", "'"]
)  # fmt: skip


@given(st.lists(INLINE, max_size=25).map("".join))
@settings(max_examples=400)
def test_the_structure_of_any_text_stays_the_same(source):
    document = parse_markdown(source.encode())
    assert document.render(document.segments).decode() == source
    rendered = in_capitals(source)
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def structure(text: str) -> list[object]:
        return [
            (token.type, token.tag, [(child.type, child.attrs.get("href")) for child in token.children or []
                                     if child.type not in ("text", "softbreak", "hardbreak")])
            for token in markdown.parse(text)
        ]  # fmt: skip

    assert structure(rendered) == structure(source)


MARKS = st.sampled_from(["word", " ", "\n", "\n\n", "- ", "[ ] ", "[x] ", "[^x]", "[^y]: ", "*", "> ", "    ", "](a)"])


@given(st.lists(MARKS, max_size=20).map("".join))
@settings(max_examples=300)
def test_all_footnotes_of_any_text_stay(source):
    document = parse_markdown(source.encode())
    assert document.render(document.segments).decode() == source
    marks = re.compile(r"\[\^[xy]\]:?(?!\()")
    assert sorted(marks.findall(in_capitals(source))) == sorted(marks.findall(source))

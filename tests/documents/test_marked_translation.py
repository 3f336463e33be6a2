"""Tests of the translation of texts with inline markup, with a small trained model."""

from pathlib import Path

import pytest

from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.protected_spans import changed_spans, find_all
from dragoman.decoding.sentence_splitting import split_sentences
from dragoman.decoding.translator_loading import load
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.marked_translation import sentences_with_tags, translate_marked
from dragoman.exporting.exporter import export

from ..models import LINES, briefly_trained_model, save_model, train_tokenizer
from ..shared_folder import shared_folder


def make_models(folder: Path) -> None:
    tokenizer = train_tokenizer(folder)
    stored = save_model(folder / "torch", briefly_trained_model(tokenizer), tokenizer, "en-de", beam=2)
    export(stored, folder / "ctranslate2", "ctranslate2")


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LineTranslator:
    return load(shared_folder(tmp_path_factory, "marked", make_models) / request.param, "cpu")


def test_tags_do_not_change_the_translation(translator: LineTranslator) -> None:
    lines = [line for line in LINES if not find_all(line)]
    marked = [MarkedText(line, (InlineTag(0, 3, 7), InlineTag(4, len(line) // 2, 8))) for line in lines]
    translated = translate_marked(translator, marked)
    assert [text.text for text in translated] == translator.translate(lines)
    assert all({tag.key for tag in text.tags} == {7, 8} for text in translated)


def test_a_tag_around_a_sentence_stays_around_it(translator: LineTranslator) -> None:
    first, second = LINES[:2]
    text = f"{first}\n  {second}"
    [translated] = translate_marked(translator, [MarkedText(text, (InlineTag(len(text) - len(second), len(text), 0),))])
    [tag] = translated.tags
    assert translated.text[tag.start : tag.end] == translator.translate([second])[0]
    assert translated.text[: tag.start] == translator.translate([first])[0] + "\n  "


def test_a_tag_from_one_sentence_into_the_next_stays_one_tag(translator: LineTranslator) -> None:
    first, second = LINES[:2]
    text = f"{first}\n{second}"
    [translated] = translate_marked(
        translator, [MarkedText(text, (InlineTag(len(first) // 2, len(first) + 1 + len(second), 0),))]
    )
    [tag] = translated.tags
    assert tag.start <= translated.text.index("\n") < tag.end == len(translated.text)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "日本語 👩‍🔧 \x00 \ud800", "word " * 700, "...", "ﬁne ½ e\u0301"])
def test_any_text_can_be_translated(translator: LineTranslator, text: str) -> None:
    tags = (InlineTag(0, len(text), 0), InlineTag(len(text) // 3, len(text) // 2, 1))
    [translated] = translate_marked(translator, [MarkedText(text, tags)])
    assert sorted(tag.key for tag in translated.tags) == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "%d book",
        "Visit https://example.org/a?b=1, {name}, and pay 1,250.75 by 10:30.",
        "The teacher reads {count} books in 2024. See www.example.org or write to me@example.org.",
        "Open <b>the file</b> or <a href='x'>a book</a>.",
    ],
)
def test_protected_spans_are_kept(translator: LineTranslator, text: str) -> None:
    tags = (InlineTag(0, len(text) // 2, 0),)
    for translated in translate_marked(translator, [MarkedText(text), MarkedText(text, tags)]):
        assert not changed_spans(text, translated.text)
    assert changed_spans(text, translator.translate([text])[0])  # The model alone loses them.


def test_only_sentences_with_tags_inside_are_aligned() -> None:
    text = "One cat. Two dogs. Three birds."
    tags = (InlineTag(0, 8, 0), InlineTag(13, 28, 1))
    assert sentences_with_tags(MarkedText(text, tags), split_sentences(text)) == ["Two dogs.", "Three birds."]

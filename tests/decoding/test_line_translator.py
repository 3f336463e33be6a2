"""Text in, text out: as many lines come out as go in, in order, whatever they contain."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.batching.packed_batch import pack_sentences
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.beam_search import search
from dragoman.decoding.hypotheses import Hypothesis
from dragoman.decoding.line_translator import (
    MAX_SEGMENT_TOKENS,
    make_batches,
    normalize_line,
    split_line,
    to_single_line,
)
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.translator import Translator
from dragoman.settings import DecodingSettings

from ..models import PAIRS

LINES = [english for english, _ in PAIRS]
ODD_LINES = [
    "", " ", "\t\u3000 ", "\n", "\r\n", "\x00", "a\x00b", "\ud800", "x\udfffy", "\u2028", "\u200b", "\x1c\x1d\x1e",
    "one\u2028two\u0085three\x0bfour", "\ufeffwith a mark", "▁", "▁▁ ▁", "<s></s><pad><unk>", "...", "🐪🐪👩‍👩‍👧",
    "日本語。", "e\u0301" * 40, "½ ﬁ Ⅳ",
]  # fmt: skip


def is_one_line(text: str) -> bool:
    return len(text.splitlines()) <= 1 and text.splitlines() == ([text] if text else [])


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.text(st.characters(codec=None), max_size=30) | st.sampled_from(ODD_LINES), max_size=6))
def test_the_output_has_as_many_lines_as_the_input(translator: Translator, lines: list[str]) -> None:
    translated = translator.translate(lines)
    assert len(translated) == len(lines)
    assert all(map(is_one_line, translated))
    for line, translation in zip(lines, translated, strict=True):
        translation.encode("utf-8")
        if not line.strip():
            assert translation == ""


def test_unusual_lines_give_one_line_each(translator: Translator) -> None:
    translated = translator.translate(ODD_LINES)
    assert len("\n".join(translated).split("\n")) == len(ODD_LINES)
    assert all(map(is_one_line, translated))
    unfiltered = [translator.tokenizer.decode(found.tokens) for found in raw_hypotheses(translator, LINES[:40])]
    assert not all(map(is_one_line, unfiltered)), "the model generates no line breaks"


def raw_hypotheses(translator: Translator, lines: list[str]) -> list[Hypothesis]:
    end, vocabulary = translator.tokenizer.eos_id, translator.model.architecture.vocabulary
    source = pack_sentences([[*translator.tokenizer.encode(line), end] for line in lines])
    found = search(
        translator.model, source, translator.options, SpecialTokens.from_tokenizer(translator.tokenizer, vocabulary)
    )
    return [best for [best] in found]


def test_lines_keep_their_order_and_are_translated_independently(translator: Translator) -> None:
    lines = [*LINES[:12], "", LINES[0], *LINES[12:20]]
    together = translator.translate(lines)
    assert together == [translator.translate([line])[0] for line in lines]
    assert len(set(together)) > 5, "the test data is too simple"
    assert translator.translate([]) == []


def test_a_line_without_words_is_not_translated(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "search", lambda sources, n_best: dict(zip(sources, [], strict=True)))
    assert translator.translate(["", "  ", "\x00\u200b"]) == ["", "", ""]


def test_each_line_is_encoded_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, encoding would otherwise take a good part of the time of the search."""
    encoded, encode = [], translator.tokenizer.encode
    monkeypatch.setattr(translator.tokenizer, "encode", lambda text: encoded.append(text) or encode(text))
    translator.encode_lines(["a dog", "the house", "a dog", ""])
    assert sorted(encoded) == ["", "a dog", "the house"]


def test_n_best_are_sorted_and_have_different_texts(translator: Translator) -> None:
    wide = Translator(translator.model, translator.tokenizer, DecodingSettings(beam=5, max_length_ratio=0.2))
    most = 0
    for line, found in zip(LINES[:8], wide.translate_scored(LINES[:8], n_best=5), strict=True):
        texts = [found.text, *(other.text for other in found.alternatives)]
        scores = [found.score, *(other.score for other in found.alternatives)]
        assert len(texts) <= 5
        assert len(set(texts)) == len(texts)
        assert scores == sorted(scores, reverse=True)
        assert wide.translate([line]) == [found.text]
        most = max(most, len(texts))
    assert most > 3


def test_a_stream_reads_at_most_look_ahead_lines(translator: Translator) -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in LINES[:20]:
            taken += 1
            yield line

    stream = translator.translate_stream(lines(), look_ahead=4)
    first = next(stream)
    assert taken == 4
    assert [first.text, *(translation.text for translation in stream)] == translator.translate(LINES[:20])


def test_a_string_instead_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(TypeError, match="pass a list"):
        translator.translate("Hello.")


@pytest.mark.parametrize(
    "text",
    [
        " ".join(LINES),
        " ".join(LINES).replace(".", ","),
        " ".join(LINES).replace(".", "").replace(",", ""),
        "x" * 3000,
        "猫がいる。" * 200,
        "🐪" * 300,
    ],
    ids=["sentences", "clauses", "words", "no spaces", "no spaces but full stops", "bytes"],
)
def test_long_lines_are_split_and_nothing_is_lost(tokenizer: Tokenizer, text: str) -> None:
    segments = split_line(text, lambda part: len(tokenizer.encode(part)), MAX_SEGMENT_TOKENS)
    assert len(segments) > 1
    assert "".join(segment.text + segment.separator for segment in segments) == text
    sizes = [len(tokenizer.encode(segment.text)) for segment in segments]
    assert max(sizes) <= MAX_SEGMENT_TOKENS + 4
    assert sum(sizes) / len(sizes) > MAX_SEGMENT_TOKENS / 3, "there are more segments than needed"


def test_long_lines_are_split_at_the_best_boundary() -> None:
    def count_words(text: str) -> int:
        return len(text.split())

    text = "One two three. Four five, six seven. Eight (nine?) Ten."
    assert [segment.text for segment in split_line(text, count_words, 5)] == [
        "One two three.",
        "Four five, six seven.",
        "Eight (nine?) Ten.",
    ]
    assert [segment.text for segment in split_line("a b, c d e f g", count_words, 3)] == ["a b,", "c d e", "f g"]
    assert split_line("short", count_words, 5)[0].separator == ""
    assert split_line("", count_words, 5) == []


def test_a_very_long_line_gives_one_line(translator: Translator) -> None:
    [found] = translator.translate_scored([" ".join(LINES[:90])], n_best=2)
    assert is_one_line(found.text)
    assert found.text.count(" ") > 0


def test_text_is_normalized_before_and_after_translation() -> None:
    assert normalize_line(" a\u2028b\x00\t c\ud800 ") == "a b c\ufffd"
    assert to_single_line("a\n\rb\u2028\x85c\x0b\x0c ") == "a b c"


def test_batches_have_each_source_once_and_stay_within_their_size() -> None:
    sources = [tuple(range(length)) for length in (3, 9, 1, 30, 4, 4, 2)]
    made = list(make_batches(sources, 16))
    assert sorted(source for batch in made for source in batch) == sorted(sources)
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= 16 for batch in made)
    assert [len(source) for batch in made for source in batch] == [30, 9, 4, 4, 3, 2, 1]

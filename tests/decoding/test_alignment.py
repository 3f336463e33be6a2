"""Tests of alignment by attention."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.alignment import AlignmentLink, TokenizedPair, align, compose_links
from dragoman.decoding.translator_loading import load
from dragoman.exporting.exporter import export

from ..models import PAIRS, briefly_trained_model, save_model, train_tokenizer
from ..shared_folder import shared_folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "aligned", make_models)


def make_models(folder: Path) -> None:
    tokenizer = train_tokenizer(folder)
    stored = save_model(folder / "torch", briefly_trained_model(tokenizer), tokenizer, "en-de", beam=2)
    export(stored, folder / "ctranslate2", "ctranslate2", "float32")


def test_both_engines_have_the_same_attention(models: Path) -> None:
    engines = [load(models / name, "cpu") for name in ("torch", "ctranslate2")]
    tokenizer = engines[0].tokenizer
    pairs = [TokenizedPair.encode(tokenizer, *pair).tokens for pair in PAIRS[:20]]
    pairs.append((pairs[0][0], []))
    for on_torch, on_ctranslate2, (source, target) in zip(*(e.attention(pairs) for e in engines), pairs, strict=True):
        assert on_torch.shape == on_ctranslate2.shape == (len(target), len(source) - 1)
        np.testing.assert_allclose(on_torch, on_ctranslate2, atol=1e-4)


def test_links_are_within_both_texts_and_of_visible_characters(models: Path) -> None:
    engine = load(models / "ctranslate2", "cpu")
    for (source, target), links in zip(PAIRS[:20], align(engine, PAIRS[:20]), strict=True):
        assert links
        for link in links:
            for part in (source[link.source_start : link.source_end], target[link.target_start : link.target_end]):
                assert part
                assert part == part.strip()


def test_long_sentences_are_linked_in_order(models: Path) -> None:
    [links] = align(load(models / "ctranslate2", "cpu"), [("a " * 600, "b " * 600)])
    assert all(link.source_start == link.target_start for link in links)


def test_numbers_and_names_that_are_copied_are_linked_with_themselves(models: Path) -> None:
    source, target = "On 3.5.2012 Martin saw {file}.", "Martin sah {file} am 3.5.2012."
    [links] = align(load(models / "ctranslate2", "cpu"), [(source, target)])
    linked = {(source[a.source_start : a.source_end], target[a.target_start : a.target_end]) for a in links}
    assert {("2012", "2012"), ("Martin", "Martin"), ("file", "file"), ("{", "{")} <= linked
    assert not any(word in ("Martin", "2012") and copy != word for copy, word in linked)


TEXTS = st.text(max_size=20) | st.text("a \t\x00\x85é½ﬁ日\u0301\ud800 ", max_size=20)


@given(TEXTS, TEXTS)
def test_tokens_of_any_text_have_spans_in_it(tokenizer: Tokenizer, source: str, target: str) -> None:
    pair = TokenizedPair.encode(tokenizer, source, target)
    for text, spans in ((source, pair.source_spans), (target, pair.target_spans)):
        assert all(0 <= start <= end <= len(text) for _, start, end in spans)
        assert [start for _, start, _ in spans] == sorted(start for _, start, _ in spans)
    source_tokens, target_tokens = pair.tokens
    attention = np.full((len(target_tokens), len(source_tokens) - 1), 0.1, np.float32)
    for link in (*pair.link(attention), *pair.link_in_order()):
        assert source[link.source_start : link.source_end].strip()
        assert target[link.target_start : link.target_end].strip()


@pytest.fixture(scope="module")
def tokenizer(models: Path) -> Tokenizer:
    return load(models / "torch", "cpu").tokenizer


def test_links_through_a_third_text_connect_what_its_words_connect() -> None:
    first = [AlignmentLink(0, 3, 4, 8), AlignmentLink(4, 7, 0, 3)]
    second = [AlignmentLink(0, 3, 0, 2), AlignmentLink(4, 8, 3, 9, 0.9), AlignmentLink(0, 3, 3, 9, 0.1)]
    links = {
        (link.source_start, link.source_end, link.target_start, link.target_end): link.weight
        for link in compose_links(first, second)
    }
    assert links == {
        (4, 7, 0, 2): pytest.approx(1.0),
        (0, 3, 3, 9): pytest.approx(0.9),
        (4, 7, 3, 9): pytest.approx(0.1),
    }
    assert compose_links([], second) == compose_links(first, []) == []

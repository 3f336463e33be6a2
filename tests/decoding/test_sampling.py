"""Sampled translations, which belong to their lines."""

import pytest
import torch

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.sampling import LineSampler, SamplingSettings, gumbel_noise
from dragoman.decoding.translator import Translator
from dragoman.settings import DecodingSettings

from ..models import LINES
from .conftest import byte_model

SOME = [*LINES[:6], "", LINES[0], "long, very long. " * 120]


def texts(translator: Translator, lines: list[str], first_line: int = 0, count: int = 2, **settings: object) -> list:
    found = LineSampler(translator, SamplingSettings(**settings)).sample(lines, first_line, count)
    return [[candidate.text for candidate in candidates] for candidates in found]


def test_the_samples_of_a_line_do_not_depend_on_the_batch(translator: Translator) -> None:
    together = texts(translator, SOME, first_line=7)
    assert together == [texts(translator, [line], first_line=7 + index)[0] for index, line in enumerate(SOME)]


def test_lines_candidates_and_seeds_have_samples_of_their_own(translator: Translator) -> None:
    first = texts(translator, LINES[:1], count=3)[0]
    assert len(first) == 3  # Equal ones would be one.
    assert texts(translator, LINES[:1], first_line=1, count=3)[0] != first
    assert texts(translator, LINES[:1], count=3, seed=2)[0] != first
    assert texts(translator, LINES[:1], first_line=10**11, count=1) != [first[:1]]


def test_one_likeliest_token_is_greedy_search(tokenizer: Tokenizer) -> None:
    greedy = Translator(byte_model(tokenizer), tokenizer, DecodingSettings(beam=1, max_length_ratio=0.2))
    assert texts(greedy, SOME, count=1, top_k=1) == [[text] for text in greedy.translate(SOME)]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625])
    keys, seed = torch.arange(20000, dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32)
    noise = gumbel_noise(keys, seed, 2, torch.arange(5)[None])
    assert torch.isfinite(noise).all()
    drawn = (probabilities.log() / temperature + noise).argmax(-1)
    shares = torch.bincount(drawn, minlength=5) / len(keys)
    expected = probabilities ** (1 / temperature)
    torch.testing.assert_close(shares, expected / expected.sum(), atol=0.015, rtol=0)

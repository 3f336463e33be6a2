import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.architecture import architecture_of, attention_flops, parameter_count, token_flops

from .counted_flops import count_by_torch

LENGTHS = [(90, 120), (40, 7), (150, 60), (3, 200)]


@pytest.mark.parametrize("recipe", ["tiny", "modern"])
def test_counted_flops_equal_those_of_torchs_counter(recipe):
    smaller = ["model.attention_dropout=0.1", "model.d_model=64", "model.heads=2", "model.feed_forward=96"]
    architecture = architecture_of(recipe, *smaller).replaced(vocabulary=200)
    lengths = np.array(LENGTHS, np.int32)
    products = sum(flops * int(tokens) for flops, tokens in zip(token_flops(architecture), lengths.sum(0), strict=True))
    attention = attention_flops(architecture, lengths)
    counted = count_by_torch(architecture, LENGTHS)
    assert products + attention == counted
    assert products < 0.9 * counted, "attention is a noticeable part here"


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=30))
def test_attention_of_a_corpus_is_the_sum_over_its_pairs(pairs):
    architecture = architecture_of("tiny")
    separate = [attention_flops(architecture, np.array([pair], np.int32)) for pair in pairs]
    assert attention_flops(architecture, np.array(pairs, np.int32)) == sum(separate)


@pytest.mark.parametrize("recipe", ["student", "student-tiny"])
def test_students_fit_into_20_megabytes(recipe):
    """In int8 each parameter is a byte; tokenizer, vocabulary and scales take less than 2 MB."""
    assert parameter_count(architecture_of(recipe)) < 18_000_000

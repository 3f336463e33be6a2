import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.doctor import step_benchmark
from dragoman.doctor.step_benchmark import LONGEST, MAX_FIXED, SyntheticPairs, benchmark, split_pass
from dragoman.model.architecture import Architecture, parameter_count
from dragoman.recipe import resolve

from ..small import TINY


def test_the_model_of_the_recipe_is_benchmarked(monkeypatch):
    monkeypatch.setattr(step_benchmark, "LONG_S", 0.0)
    settings = resolve(None, [*TINY, "tokenizer.vocabulary_size=400"]).settings
    found = benchmark(settings)
    assert found.parameters == parameter_count(Architecture(vocabulary=400, **settings.model.model_dump()))
    assert found.tokens_per_s > 0
    assert found.update_s > 0
    assert found.copy_s > 0
    assert found.compress_s > 0
    assert sum(rows * columns for rows, columns in found.matrices) < found.parameters
    assert found.device == "CPU" or found.gpus


def test_synthetic_pairs_can_have_the_lengths_of_a_data_set():
    assert {tuple(pair) for pair in SyntheticPairs(1000, [(3, 4), (5, 9)]).lengths().tolist()} == {(3, 4), (5, 9)}
    settings = resolve(None, [*TINY, "tokenizer.vocabulary_size=400"]).settings
    assert benchmark(settings, workers=2, lengths=[(3, 4), (300, 310)]).tokens_per_s > 0


def test_synthetic_pairs_have_the_lengths_that_they_report():
    pairs = SyntheticPairs(1000)
    lengths = pairs.lengths()
    assert lengths.max() <= LONGEST
    assert lengths.mean() == pytest.approx(25, abs=3)
    chosen = np.array([5, 7, 11])
    source, target = pairs.gather(chosen)
    assert [len(source), len(target)] == lengths[chosen].sum(axis=0).tolist()
    assert max(source.max(), target.max()) < 1000


@given(
    fixed_s=st.floats(0, 1), tokens_per_s=st.floats(10, 1e6), fewer=st.integers(10, 1000), more=st.integers(1001, 9000)
)
def test_the_time_of_a_pass_is_split_into_a_fixed_cost_and_a_rate(fixed_s, tokens_per_s, fewer, more):
    passes = [(float(tokens), fixed_s + tokens / tokens_per_s) for tokens in (fewer, more)]
    pass_s, speed = split_pass(passes)
    assert pass_s + more / speed == pytest.approx(passes[1][1])
    if fixed_s < MAX_FIXED * passes[1][1] and fewer / tokens_per_s > 1e-6:
        assert pass_s == pytest.approx(fixed_s, rel=1e-3, abs=1e-6)


def test_scattered_times_still_give_a_positive_rate():
    assert split_pass([(100.0, 2.0), (200.0, 1.0)]) == (0.0, 200.0)
    assert split_pass([(100.0, 1.0)]) == (0.0, 100.0)
    assert split_pass([(100.0, 1.0), (200.0, 1.0001)]) == pytest.approx((0.50005, 200 / 0.50005))

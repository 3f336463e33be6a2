import numpy as np
import pytest

from dragoman.doctor.synthetic_data import FIRST_ID, LONGEST, SyntheticDataSet, SyntheticPairs


def test_pairs_can_have_the_lengths_of_a_data_set_and_always_have_its_longest():
    given = [(3, 4)] * 10_000 + [(5, 9), (7, 2)]
    for seed_independent_count in (2, 50, 20_000):
        lengths = SyntheticPairs(1000, given, seed_independent_count).lengths()
        assert len(lengths) == seed_independent_count
        assert lengths.max(axis=0).tolist() == [7, 9]
        assert {tuple(pair) for pair in lengths.tolist()} <= set(given)


def test_pairs_have_the_lengths_that_they_report():
    pairs = SyntheticPairs(1000)
    lengths = pairs.lengths()
    assert lengths.max() <= LONGEST
    assert lengths.mean() == pytest.approx(25, abs=3)
    chosen = np.array([5, 7, 11])
    source, target = pairs.gather(chosen)
    assert [len(source), len(target)] == lengths[chosen].sum(axis=0).tolist()


def test_few_tokens_are_frequent_and_all_are_in_the_vocabulary():
    source, target = SyntheticPairs(1000).gather(np.arange(20_000))
    tokens = np.concatenate([source, target])
    assert tokens.min() == FIRST_ID
    assert tokens.max() < 1000
    assert np.bincount(tokens).max() > 20 * len(tokens) / 1000


def test_the_data_set_describes_its_pairs():
    data = SyntheticDataSet(1000, [(3, 4)], 10)
    train = data.manifest.splits["train"]
    assert (train.pairs, train.source_tokens, train.target_tokens) == (10, 30, 40)
    assert data.tokenizer.padded_vocab_size == data.manifest.pieces == 1000

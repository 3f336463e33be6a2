"""The batch plan: every pair once, batches within their budget, shares in proportion."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batching.batch_plan import assign, batch_bounds, plan_epoch, share
from dragoman.errors import DragomanError

lengths_of_pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=300).map(
    lambda pairs: np.array(pairs, np.int32)
)
worker_shares = st.lists(st.floats(0.05, 20), min_size=1, max_size=9)


@given(lengths_of_pairs, st.integers(60, 400), st.integers(0, 2**31), st.integers(0, 50))
def test_every_pair_occurs_once_per_epoch(lengths, tokens, seed, epoch):
    plan = plan_epoch(lengths, tokens, seed, epoch)
    seen = np.concatenate([plan[position] for position in range(len(plan))])
    assert sorted(seen) == list(range(len(lengths)))


@given(lengths_of_pairs, st.integers(60, 400), st.integers(0, 9), st.data())
def test_chosen_pairs_occur_as_often_as_they_were_chosen(lengths, tokens, seed, data):
    chosen = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=400)), np.int32)
    plan = plan_epoch(lengths, tokens, seed, 0, chosen)
    batches = [plan[position] for position in range(len(plan))]
    assert sorted(np.concatenate(batches)) == sorted(chosen)
    assert all(lengths[batch].sum(axis=0).max() <= tokens for batch in batches)


@given(lengths_of_pairs, st.integers(60, 400), st.integers(0, 9))
def test_no_batch_exceeds_its_budget_on_either_side(lengths, tokens, seed):
    plan = plan_epoch(lengths, tokens, seed, epoch=0)
    assert all(lengths[plan[position]].sum(axis=0).max() <= tokens for position in range(len(plan)))


@given(lengths_of_pairs, st.integers(0, 9), st.integers(0, 9))
def test_the_plan_depends_on_nothing_but_its_arguments(lengths, seed, epoch):
    first, again = (plan_epoch(lengths, 100, seed, epoch) for _ in range(2))
    assert len(first) == len(again)
    assert all((first[position] == again[position]).all() for position in range(len(first)))


def test_a_plan_stays_the_same_in_every_version():
    """A run resumes at a position of the plan, so another version must compute the same batches."""
    lengths = np.random.default_rng(0).integers(1, 60, (5000, 2)).astype(np.int32)
    plan = plan_epoch(lengths, 1000, seed=3, epoch=2)
    content = b"".join(part.astype("<i8").tobytes() for part in (plan.order, plan.bounds, plan.sequence))
    assert hashlib.sha256(content).hexdigest()[:16] == "d8370eb398228211"


@given(lengths_of_pairs, st.integers(60, 400))
def test_each_batch_takes_as_many_consecutive_pairs_as_fit(lengths, tokens):
    bounds, filled = [0], np.zeros(2, np.int64)
    for number, pair in enumerate(lengths):
        if (filled + pair).max() > tokens:
            bounds.append(number)
            filled[:] = 0
        filled += pair
    assert batch_bounds(lengths, tokens).tolist() == [*bounds, len(lengths)]


def test_epochs_and_seeds_differ():
    lengths = np.random.default_rng(0).integers(1, 60, (5000, 2)).astype(np.int32)
    plans = [plan_epoch(lengths, 1000, seed, epoch) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    orders = [np.concatenate([plan[position] for position in range(len(plan))]) for plan in plans]
    assert not (orders[0] == orders[1]).all()
    assert not (orders[0] == orders[2]).all()


def test_pairs_of_a_batch_are_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 80, (20000, 2)).astype(np.int32)
    plan = plan_epoch(lengths, 2000, seed=1, epoch=0)
    longest = lengths.max(axis=1)
    padded = sum(len(plan[position]) * longest[plan[position]].max() for position in range(len(plan)))
    assert longest.sum() / padded > 0.9


def test_batches_are_nearly_full():
    lengths = np.random.default_rng(0).integers(1, 80, (20000, 2)).astype(np.int32)
    plan = plan_epoch(lengths, 4000, seed=1, epoch=0)
    assert lengths.max(axis=0).max() == 79
    fill = [lengths[plan[position]].sum(axis=0).max() / 4000 for position in range(len(plan))]
    assert np.mean(fill) > 0.95


@given(lengths_of_pairs, worker_shares, st.integers(0, 9))
def test_shares_cover_each_pair_exactly_once(lengths, shares, seed):
    plan = plan_epoch(lengths, 200, seed, epoch=0)
    for position in range(len(plan)):
        parts = [share(plan[position], lengths, shares, rank) for rank in range(len(shares))]
        assert sorted(np.concatenate(parts)) == sorted(plan[position])


@settings(max_examples=300)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=400), worker_shares)
def test_each_share_differs_from_its_proportion_by_at_most_a_sentence(sizes, shares):
    sizes = np.array(sizes)
    workers = assign(sizes, shares)
    for rank, fraction in enumerate(np.array(shares) / sum(shares)):
        assert abs(sizes[workers == rank].sum() - fraction * sizes.sum()) <= sizes.max() + 1e-6


def test_all_workers_get_the_same_mix_of_lengths():
    sizes = np.random.default_rng(0).integers(2, 120, 600)
    workers = assign(sizes, [1, 1, 2])
    means = [sizes[workers == rank].mean() for rank in range(3)]
    assert max(means) - min(means) < 0.05 * sizes.mean()


def test_a_worker_with_a_share_of_zero_gets_no_pairs():
    assert not (assign(np.array([5, 3, 9]), [1, 0]) == 1).any()


@given(lengths_of_pairs, st.integers(0, 9), worker_shares, worker_shares, st.data())
def test_a_resumed_run_takes_exactly_the_remaining_pairs_with_any_shares(lengths, seed, before, after, data):
    plan = plan_epoch(lengths, 120, seed, epoch=3)
    stop = data.draw(st.integers(0, len(plan)))
    seen = [share(plan[p], lengths, before, rank) for p in range(stop) for rank in range(len(before))]
    again = plan_epoch(lengths, 120, seed, epoch=3)
    seen += [share(again[p], lengths, after, rank) for p in range(stop, len(again)) for rank in range(len(after))]
    assert sorted(np.concatenate(seen)) == list(range(len(lengths)))


@pytest.mark.parametrize("shares", [[], [0, 0], [-1, 2], [float("nan")] * 2, [float("inf"), 1]])
def test_invalid_shares_are_refused(shares):
    with pytest.raises(DragomanError, match="shares"):
        assign(np.array([1, 2]), shares)


def test_a_token_budget_below_the_longest_sentence_is_refused():
    with pytest.raises(DragomanError, match=r"batch.tokens = 96 .*\(140 tokens\): raise it"):
        plan_epoch(np.array([[3, 140]], np.int32), 96, seed=0, epoch=0)


def test_a_token_budget_below_the_longest_sentence_is_refused_even_if_another_epoch_has_it():
    with pytest.raises(DragomanError, match=r"batch.tokens = 96 .*\(140 tokens\): raise it"):
        plan_epoch(np.array([[3, 140], [5, 5]], np.int32), 96, seed=0, epoch=0, chosen=np.array([1], np.int32))


def test_an_empty_data_set_is_refused():
    with pytest.raises(DragomanError, match="no training pairs"):
        plan_epoch(np.empty((0, 2), np.int32), 96, seed=0, epoch=0)

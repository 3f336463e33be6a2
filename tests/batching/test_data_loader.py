import itertools

import numpy as np
import pytest
import torch

from dragoman.batching.data_loader import DataLoader, Position
from dragoman.corpus.shards import OFFSET, Pairs
from dragoman.errors import DragomanError


def feed(data, micro_tokens=10**6, tokens=300) -> DataLoader:
    return DataLoader(data.pairs("train"), data.tokenizer, tokens, seed=1, micro_tokens=micro_tokens)


def shares_of(data, position=Position(), shares=(1.0,), rank=0, count=20, **options):
    return list(itertools.islice(feed(data, **options).shares(position, shares, rank), count))


def test_tensors_are_the_pairs_shifted_and_marked(data):
    pairs = data.pairs("train")
    batch = feed(data).tensors(np.array([3, 8]))
    source, target = (np.concatenate([pairs[3][side], pairs[8][side]]) for side in (0, 1))
    assert batch.source.tokens.tolist() == source.tolist()
    assert batch.labels.tolist() == target.tolist()
    start = data.tokenizer.start
    assert batch.target.tokens.tolist() == [start, *pairs[3][1][:-1].tolist(), start, *pairs[8][1][:-1].tolist()]


def test_an_epoch_holds_every_pair_once_and_the_next_follows(data):
    seen, epochs = [], []
    for share in feed(data).shares(Position(), [1.0], 0):
        if share.position.epoch == 1:
            break
        seen.extend(share.pairs.tolist())
        epochs.append(share.next_position)
    assert sorted(seen) == list(range(len(data.pairs("train"))))
    assert epochs[-1] == Position(1, 0)


def test_a_resumed_feed_goes_on_where_the_first_stopped(data):
    whole = shares_of(data, count=12)
    rest = shares_of(data, position=whole[4].next_position, count=7)
    assert [share.pairs.tolist() for share in whole[5:]] == [share.pairs.tolist() for share in rest]


def test_workers_split_a_batch_and_agree_on_its_tokens(data):
    alone = shares_of(data)
    parts = [shares_of(data, shares=(3, 1), rank=rank) for rank in (0, 1)]
    for whole, first, second in zip(alone, *parts, strict=True):
        assert sorted(whole.pairs) == sorted([*first.pairs, *second.pairs])
        assert whole.target_tokens == first.target_tokens == second.target_tokens
        assert whole.target_tokens == sum(piece.labels.numel() for part in (first, second) for piece in part.pieces)


@pytest.mark.parametrize("micro_tokens", [1, 40, 120, 10**6])
def test_cutting_loses_no_pair_and_keeps_to_its_limit(data, micro_tokens):
    for share in shares_of(data, micro_tokens=micro_tokens, count=5):
        labels = torch.cat([piece.labels for piece in share.pieces])
        whole = feed(data).tensors(share.pairs).labels
        assert torch.equal(labels, whole)
        for piece in share.pieces:
            tokens = max(piece.labels.numel(), piece.source.tokens.numel())
            assert tokens <= micro_tokens or piece.target.layout.sentences == 1


@pytest.mark.parametrize("shares", [(1.0,), (3.0, 1.0)])
def test_fixed_sizes_are_the_same_for_all_shares_and_hold_the_same_labels(data, shares):
    fixed = DataLoader(data.pairs("train"), data.tokenizer, 2000, seed=1, micro_tokens=2000, fixed_sizes=True)
    plain = DataLoader(data.pairs("train"), data.tokenizer, 2000, seed=1, micro_tokens=2000)
    for rank in range(len(shares)):
        pairs = zip(*(each.shares(Position(), shares, rank) for each in (fixed, plain)), strict=False)
        pieces = [(ours.pieces, theirs.pieces) for ours, theirs in itertools.islice(pairs, 30)]
        sizes = {(piece.source.tokens.shape[0], piece.labels.shape[0]) for ours, _ in pieces for piece in ours}
        assert len(sizes) == 1
        assert all(size % 128 == 0 for size in sizes.pop())
        for ours, theirs in pieces:
            labels = [torch.cat([piece.labels for piece in each]) for each in (ours, theirs)]
            assert torch.equal(labels[0][labels[0] >= 0], labels[1])


@pytest.mark.parametrize("micro_tokens", [3000, 2600, 1700, 1100])
def test_pieces_of_fixed_size_hold_little_filler(data, micro_tokens):
    fixed = DataLoader(data.pairs("train"), data.tokenizer, 3000, seed=1, micro_tokens=micro_tokens, fixed_sizes=True)
    shares = list(itertools.islice(fixed.shares(Position(), [1.0], 0), 5))
    pieces = [piece for share in shares for piece in share.pieces]
    assert len({piece.labels.shape[0] for piece in pieces}) == 1
    assert sum(share.target_tokens for share in shares) > 0.8 * sum(piece.labels.shape[0] for piece in pieces)


@pytest.mark.parametrize("fixed_sizes", [False, True])
def test_a_data_set_without_pairs_is_told_in_a_sentence(data, tmp_path, fixed_sizes):
    np.zeros(1, OFFSET).tofile(tmp_path / "00000.offsets")
    np.zeros(1, np.uint16).tofile(tmp_path / "00000.tokens")
    pairs = Pairs(tmp_path, np.dtype(np.uint16))
    with pytest.raises(DragomanError, match="There are no pairs"):
        list(DataLoader(pairs, data.tokenizer, 300, 1, 300, fixed_sizes).shares(Position(), [1.0], 0))

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.batching.data_loader import BatchStream, DataLoader, Position
from dragoman.corpus.data_mixture import open_data
from dragoman.corpus.shards import OFFSET_DTYPE, Pairs
from dragoman.errors import DragomanError


def make_loader(data, micro_batch_tokens=10**6, tokens=300) -> DataLoader:
    return DataLoader(data.pairs("train"), data.tokenizer, tokens, seed=1, micro_batch_tokens=micro_batch_tokens)


def batches_of(data, position=Position(), shares=(1.0,), rank=0, count=20, **options):
    return list(itertools.islice(make_loader(data, **options).batches(position, shares, rank), count))


def test_decoder_inputs_are_the_targets_shifted_right(data):
    pairs = data.pairs("train")
    batch = make_loader(data)._to_tensors(np.array([3, 8]), np.zeros((2, 2), np.int64))
    source, target = (np.concatenate([pairs[3][side], pairs[8][side]]) for side in (0, 1))
    assert batch.source.tokens.tolist() == source.tolist()
    assert batch.labels.tolist() == target.tolist()
    start = data.tokenizer.decoder_start_id
    assert batch.target.tokens.tolist() == [start, *pairs[3][1][:-1].tolist(), start, *pairs[8][1][:-1].tolist()]


def test_an_epoch_has_every_pair_once_and_is_followed_by_the_next(data):
    seen, epochs = [], []
    for batch in make_loader(data).batches(Position(), [1.0], 0):
        if batch.position.epoch == 1:
            break
        seen.extend(batch.pairs.tolist())
        epochs.append(batch.next_position)
    assert sorted(seen) == list(range(len(data.pairs("train"))))
    assert epochs[-1] == Position(1, 0)


def test_a_resumed_loader_continues_where_the_first_stopped(data):
    whole = batches_of(data, count=12)
    rest = batches_of(data, position=whole[4].next_position, count=7)
    assert [batch.pairs.tolist() for batch in whole[5:]] == [batch.pairs.tolist() for batch in rest]


def test_workers_split_a_batch_and_agree_on_its_tokens(data):
    alone = batches_of(data)
    parts = [batches_of(data, shares=(3, 1), rank=rank) for rank in (0, 1)]
    for whole, first, second in zip(alone, *parts, strict=True):
        assert sorted(whole.pairs) == sorted([*first.pairs, *second.pairs])
        assert whole.target_tokens == first.target_tokens == second.target_tokens
        assert whole.target_tokens == sum(
            micro_batch.labels.numel() for part in (first, second) for micro_batch in part.micro_batches
        )


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["0.05", "0.3", "1.7"]), st.lists(st.floats(0.1, 10), min_size=1, max_size=4), st.integers(0, 3),
    st.integers(0, 5), st.booleans(),
)  # fmt: skip
def test_the_batches_of_a_mixture_are_the_same_for_any_workers_and_from_any_position(
    data, old_data, weight, shares, epoch, batch, fixed_sizes
):
    def loader() -> DataLoader:
        pairs = open_data([data.path, f"{old_data.path}@{weight}"]).pairs("train")
        return DataLoader(pairs, data.tokenizer, 3000, 1, 3000, fixed_sizes=fixed_sizes)

    from_start = loader().batches(Position(), [1.0], 0)
    whole = next(each for each in from_start if each.position == Position(epoch, batch))
    parts = [next(loader().batches(Position(epoch, batch), shares, rank)) for rank in range(len(shares))]
    assert sorted(np.concatenate([part.pairs for part in parts])) == sorted(whole.pairs)
    assert {part.target_tokens for part in parts} == {whole.target_tokens}
    assert {part.next_position for part in parts} == {whole.next_position}


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 120, 10**6])
def test_micro_batches_have_all_pairs_and_respect_the_limit(data, micro_batch_tokens):
    for batch in batches_of(data, micro_batch_tokens=micro_batch_tokens, count=5):
        labels = torch.cat([micro_batch.labels for micro_batch in batch.micro_batches])
        whole = make_loader(data)._to_tensors(batch.pairs, batch.first_places).labels
        assert torch.equal(labels, whole)
        for micro_batch in batch.micro_batches:
            tokens = max(micro_batch.labels.numel(), micro_batch.source.tokens.numel())
            assert tokens <= micro_batch_tokens or micro_batch.target.layout.sentences == 1


def places_of(batches):
    """The places of the source and target tokens of each pair in the shares of all workers of a batch."""
    places = {}
    for batch in batches:
        parts = zip(*(_places_of_side(batch, side) for side in ("source", "target")), strict=True)
        places.update(zip(batch.pairs.tolist(), parts, strict=True))
    return places


def _places_of_side(batch, side):
    for micro_batch in batch.micro_batches:
        layout = getattr(micro_batch, side).layout
        for first, end in itertools.pairwise(layout.cu_seqlens.tolist()):
            if first < end:
                yield layout.places[first:end].tolist()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shares=st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
    micro_batch_tokens=st.integers(1, 600),
    fixed_sizes=st.booleans(),
    number=st.integers(0, 20),
)
def test_places_of_tokens_depend_on_the_global_batch_alone(data, shares, micro_batch_tokens, fixed_sizes, number):
    whole = next(make_loader(data).batches(Position(0, number), [1.0], 0))
    loader = DataLoader(data.pairs("train"), data.tokenizer, 300, 1, micro_batch_tokens, fixed_sizes=fixed_sizes)
    parts = [next(loader.batches(Position(0, number), shares, rank)) for rank in range(len(shares))]
    expected = places_of([whole])
    assert places_of(parts) == expected
    for side, tokens in ((0, whole.source_tokens), (1, whole.target_tokens)):
        assert sorted(itertools.chain(*(places[side] for places in expected.values()))) == list(range(tokens))


@pytest.mark.parametrize("shares", [(1.0,), (3.0, 1.0)])
def test_micro_batches_of_fixed_size_have_one_size_and_the_same_labels(data, shares):
    fixed = DataLoader(data.pairs("train"), data.tokenizer, 2000, seed=1, micro_batch_tokens=2000, fixed_sizes=True)
    plain = DataLoader(data.pairs("train"), data.tokenizer, 2000, seed=1, micro_batch_tokens=2000)
    for rank in range(len(shares)):
        pairs = zip(*(each.batches(Position(), shares, rank) for each in (fixed, plain)), strict=False)
        micro_batches = [(ours.micro_batches, theirs.micro_batches) for ours, theirs in itertools.islice(pairs, 30)]
        sizes = {
            (micro_batch.source.tokens.shape[0], micro_batch.labels.shape[0])
            for ours, _ in micro_batches
            for micro_batch in ours
        }
        assert len(sizes) == 1
        assert all(size % 128 == 0 for size in sizes.pop())
        for ours, theirs in micro_batches:
            labels = [torch.cat([micro_batch.labels for micro_batch in each]) for each in (ours, theirs)]
            assert torch.equal(labels[0][labels[0] >= 0], labels[1])


@pytest.mark.parametrize("micro_batch_tokens", [3000, 2600, 1700, 1100])
def test_micro_batches_of_fixed_size_have_little_padding(data, micro_batch_tokens):
    fixed = DataLoader(
        data.pairs("train"), data.tokenizer, 3000, seed=1, micro_batch_tokens=micro_batch_tokens, fixed_sizes=True
    )
    batches = list(itertools.islice(fixed.batches(Position(), [1.0], 0), 5))
    micro_batches = [micro_batch for batch in batches for micro_batch in batch.micro_batches]
    assert len({micro_batch.labels.shape[0] for micro_batch in micro_batches}) == 1
    padded_tokens = sum(micro_batch.labels.shape[0] for micro_batch in micro_batches)
    assert sum(batch.target_tokens for batch in batches) > 0.8 * padded_tokens


@pytest.mark.parametrize("fixed_sizes", [False, True])
def test_a_data_set_without_pairs_is_an_error(data, tmp_path, fixed_sizes):
    np.zeros(1, OFFSET_DTYPE).tofile(tmp_path / "00000.offsets")
    np.zeros(1, np.uint16).tofile(tmp_path / "00000.tokens")
    pairs = Pairs.open(tmp_path, np.dtype(np.uint16))
    with pytest.raises(DragomanError, match="no training pairs"):
        list(DataLoader(pairs, data.tokenizer, 300, 1, 300, fixed_sizes=fixed_sizes).batches(Position(), [1.0], 0))


@pytest.fixture
def stream(data):
    stream = BatchStream(make_loader(data))
    yield stream
    stream.close()


def test_a_stream_has_the_batches_of_its_loader(data, stream):
    assert not stream.is_open
    stream.open(Position(), [1.0], 0)
    assert stream.is_open
    for expected in batches_of(data, count=12):
        assert next(stream).pairs.tolist() == expected.pairs.tolist()


def test_a_reopened_stream_continues_at_the_new_position_with_the_new_shares(data, stream):
    stream.open(Position(), [1.0], 0)
    for _ in range(3):
        position = next(stream).next_position
    stream.open(position, [3.0, 1.0], 1)
    for expected in batches_of(data, position=position, shares=(3.0, 1.0), rank=1, count=3):
        batch = next(stream)
        assert batch.position == expected.position
        assert batch.pairs.tolist() == expected.pairs.tolist()


def test_a_stream_can_be_closed_more_than_once(stream):
    stream.close()
    stream.open(Position(), [1.0], 0)
    stream.close()
    stream.close()
    assert not stream.is_open

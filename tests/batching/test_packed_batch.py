"""Packed sentences and their layout."""

import torch

from dragoman.batching.packed_batch import IGNORED_LABEL, Batch, pack, pack_sentences, pad_to_size


def test_positions_count_from_zero_in_each_sentence() -> None:
    packed = pack_sentences([[7, 8, 9], [5], [6, 4]])
    assert packed.tokens.tolist() == [7, 8, 9, 5, 6, 4]
    assert packed.layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.layout.places.tolist() == [0, 1, 2, 3, 4, 5]
    assert packed.layout.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert packed.layout.cu_seqlens.dtype == torch.int32
    assert packed.layout.max_len == 3


def test_places_count_from_that_of_the_first_token_of_each_sentence() -> None:
    packed = pack(torch.tensor([7, 8, 9, 5]), torch.tensor([3, 1]), torch.tensor([40, 12]))
    assert packed.layout.places.tolist() == [40, 41, 42, 12]
    assert packed.layout.places.dtype == torch.int32
    assert packed.layout.positions.tolist() == [0, 1, 2, 0]


def test_a_padded_batch_has_the_given_size_and_the_same_sentences() -> None:
    batch = Batch(pack_sentences([[5, 6], [7]]), pack_sentences([[1, 8, 9], [1]]), torch.tensor([8, 9, 2, 2]))
    padded = pad_to_size(batch, 8, 16, max_len=5)
    assert [tensor.shape[0] for tensor in padded.tensors()] == [8, 8, 8, 10, 8, 16, 16, 16, 18, 16, 16]
    assert padded.source.tokens[:3].tolist() == [5, 6, 7]
    assert padded.source.layout.sentence_ids.tolist() == [0, 0, 1, 2, 2, 2, 2, 2]
    assert padded.source.layout.cu_seqlens.tolist() == [0, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    assert padded.target.layout.positions.tolist() == [0, 1, 2, 0, *[0] * 12]
    assert padded.labels.tolist() == [8, 9, 2, 2, *[IGNORED_LABEL] * 12]

"""Attention on packed sentences against the formula, sentence by sentence.

Shapes: T tokens, H heads, D features of a head.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.batching.packing import IGNORED_LABEL, Batch, Layout, filled, pack, pack_sentences
from dragoman.model.attention import attend, rotate, rotation_at
from dragoman.model.dropout import Dropout, dropout, hashed_mask, keep_mask, seed_dropout
from dragoman.model.kernels.availability import has_kernels, takes_heads

HEADS, HEAD_SIZE = 2, 8
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


def layout_of(counts: list[int]) -> Layout:
    return pack(torch.zeros(sum(counts), dtype=torch.long), torch.tensor(counts)).layout


def random_heads(tokens: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(tokens, HEADS, HEAD_SIZE, dtype=dtype, requires_grad=True)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, counts: list[tuple[int, int]], causal: bool) -> Tensor:
    """The formula of the paper for one sentence after the other: softmax(q k' / sqrt(D)) v."""
    outputs = []
    parts = zip(
        q.split([a for a, _ in counts]), k.split([b for _, b in counts]), v.split([b for _, b in counts]), strict=True
    )
    for qs, ks, vs in parts:
        scores = torch.einsum("qhd,khd->hqk", qs, ks) / HEAD_SIZE**0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), float("-inf"))
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), vs).flatten(1))
    return torch.cat(outputs)


@settings(max_examples=40)
@given(lengths)
def test_packed_attention_is_the_formula_for_each_sentence_with_its_gradients(counts: list[tuple[int, int]]) -> None:
    q, k, v = (random_heads(n) for n in (sum(a for a, _ in counts), *[sum(b for _, b in counts)] * 2))
    expected = plain_attention(q, k, v, counts, causal=False)
    actual = attend(q, k, v, layout_of([a for a, _ in counts]), layout_of([b for _, b in counts]))
    torch.testing.assert_close(actual, expected)
    upstream = torch.randn_like(expected)
    for ours, plain in zip(
        torch.autograd.grad(actual, (q, k, v), upstream),
        torch.autograd.grad(expected, (q, k, v), upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_causal_attention_is_the_formula_for_each_sentence_with_its_gradients(counts: list[int]) -> None:
    q, k, v = (random_heads(sum(counts)) for _ in range(3))
    layout = layout_of(counts)
    expected = plain_attention(q, k, v, [(n, n) for n in counts], causal=True)
    actual = attend(q, k, v, layout, layout, causal=True)
    torch.testing.assert_close(actual, expected)
    upstream = torch.randn_like(expected)
    for ours, plain in zip(
        torch.autograd.grad(actual, (q, k, v), upstream),
        torch.autograd.grad(expected, (q, k, v), upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("counts", [[5, 3, 7, 1], [4, 4]])
def test_the_explicit_kernel_agrees_with_torchs(counts: list[int], causal: bool) -> None:
    q, k, v = (random_heads(sum(counts), torch.float32) for _ in range(3))
    layout = layout_of(counts)
    expected = attend(q, k, v, layout, layout, causal=causal)
    rounded = attend(*(x.bfloat16() for x in (q, k, v)), layout, layout, causal=causal)
    torch.testing.assert_close(rounded.float(), expected, atol=0.03, rtol=0.03)


def test_dropout_of_attention_weights_keeps_the_expectation() -> None:
    torch.manual_seed(0)
    counts = [5, 3]
    q, k, v = (random_heads(sum(counts)).detach() for _ in range(3))
    layout = layout_of(counts)
    draws = torch.stack([attend(q, k, v, layout, layout, causal=True, dropout_rate=0.2) for _ in range(4000)])
    expected = attend(q, k, v, layout, layout, causal=True)
    assert draws.std(0).max() > 0.05
    torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)


def test_empty_sentences_at_the_end_change_nothing_and_give_no_nan() -> None:
    q, k, v = (random_heads(8) for _ in range(3))
    expected = attend(q, k, v, layout_of([5, 3]), layout_of([5, 3]))
    actual = attend(q, k, v, layout_of([5, 3, 0, 0]), layout_of([5, 3, 0, 0]))
    torch.testing.assert_close(actual, expected)
    gradients = torch.autograd.grad(actual.sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_sentences_of_one_length_need_no_grid() -> None:
    layout = layout_of([4, 4, 4])
    q, k, v = (random_heads(12) for _ in range(3))
    attend(q, k, v, layout, layout)
    assert layout.rectangular
    assert "grid" not in vars(layout)


def test_positions_count_from_zero_in_each_sentence() -> None:
    packed = pack_sentences([[7, 8, 9], [5], [6, 4]])
    assert packed.tokens.tolist() == [7, 8, 9, 5, 6, 4]
    assert packed.layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.layout.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert packed.layout.cu_seqlens.dtype == torch.int32
    assert packed.layout.max_len == 3


def test_rotation_is_that_of_hugging_faces_llama() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=HEADS * HEAD_SIZE, num_attention_heads=HEADS, max_position_embeddings=64
    )
    x = torch.randn(10, HEADS, HEAD_SIZE)
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 40, 41, 5, 0])
    cos, sin = llama.LlamaRotaryEmbedding(config)(x[None], positions[None])
    expected, _ = llama.apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)
    torch.testing.assert_close(rotate(x, rotation_at(positions, HEAD_SIZE)), expected[0].transpose(0, 1))


@given(st.integers(0, 20))
def test_rotated_scores_depend_on_distance_only(shift: int) -> None:
    torch.manual_seed(shift)
    q, k = torch.randn(2, 1, 1, HEAD_SIZE, dtype=torch.float64)
    here = rotate(q, rotation_at(torch.tensor([5]), HEAD_SIZE)) * rotate(k, rotation_at(torch.tensor([2]), HEAD_SIZE))
    there = rotate(q, rotation_at(torch.tensor([5 + shift]), HEAD_SIZE)) * rotate(
        k, rotation_at(torch.tensor([2 + shift]), HEAD_SIZE)
    )
    torch.testing.assert_close(here.sum(), there.sum(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_in_every_lane_and_the_expectation(rate: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(400_003)
    kept = keep_mask(x, rate)
    for lane in range(4):  # four decisions come from one random word
        assert kept[lane::4].float().mean().item() == pytest.approx(1 - rate, abs=0.01)
    for first, second in itertools.pairwise(kept[: 4 * 100_000].view(-1, 4).float().unbind(1)):
        assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.02
    assert dropout(x, rate).mean().item() == pytest.approx(1, abs=0.02)
    assert Dropout(rate).added(x, x).mean().item() == pytest.approx(2, abs=0.02)


def test_dropout_follows_the_seed() -> None:
    x = torch.randn(7, 5)
    torch.manual_seed(3)
    first = dropout(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.3))


def test_gradients_pass_where_dropout_kept_and_nowhere_else() -> None:
    residual, x = torch.zeros(1000, requires_grad=True), torch.ones(1000, requires_grad=True)
    y = Dropout(0.25).added(residual, x)
    y.sum().backward()
    assert torch.equal(residual.grad, torch.ones(1000))
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_hashed_dropout_keeps_its_share_and_is_independent_between_places_and_sites(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.empty(1000, 300)
    seeds = torch.empty(6, 2, dtype=torch.int32).random_(-(2**31), 2**31)
    masks = [hashed_mask(x, rate, seed).float() for seed in seeds]
    for mask in masks:
        assert mask.mean().item() == pytest.approx(1 - rate, abs=0.005)
        for one, other in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask[:, 2:], mask[:, :-2])):
            assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 0.01
    for one, other in itertools.combinations(masks, 2):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 0.01
    assert torch.equal(hashed_mask(x, rate, seeds[0]).float(), masks[0])


def test_seeded_dropout_of_a_relu_has_the_gradient_of_the_plain_formula() -> None:
    torch.manual_seed(0)
    drop = Dropout(0.3)
    seed_dropout(drop, torch.device("cpu")).random_(-(2**31), 2**31)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    plain = drop(x.relu())
    assert torch.equal(drop.of_relu(x), plain)
    upstream = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad(drop.of_relu(x), x, upstream), torch.autograd.grad(plain, x, upstream)
    )
    assert (plain != 0).any()
    assert torch.equal(drop.eval().of_relu(x.clone()), x.relu())


def test_a_filled_batch_has_the_size_asked_for_and_the_same_sentences() -> None:
    batch = Batch(pack_sentences([[5, 6], [7]]), pack_sentences([[1, 8, 9], [1]]), torch.tensor([8, 9, 2, 2]))
    full = filled(batch, 8, 16, max_len=5)
    assert [tensor.shape[0] for tensor in full.tensors()] == [8, 8, 10, 8, 16, 16, 18, 16, 16]
    assert full.source.tokens[:3].tolist() == [5, 6, 7]
    assert full.source.layout.sentence_of.tolist() == [0, 0, 1, 2, 2, 2, 2, 2]
    assert full.source.layout.cu_seqlens.tolist() == [0, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    assert full.target.layout.positions.tolist() == [0, 1, 2, 0, *[0] * 12]
    assert full.labels.tolist() == [8, 9, 2, 2, *[IGNORED_LABEL] * 12]


def test_kernels_of_ours_want_a_gpu_and_heads_of_a_power_of_two() -> None:
    assert not has_kernels(torch.device("cpu"))
    assert [size for size in (8, 16, 48, 64, 80, 128) if takes_heads(size)] == [16, 64, 128]


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_kernel_agrees_with_the_padded_one_on_cuda(causal: bool) -> None:
    torch.manual_seed(0)
    counts = [17, 3, 40, 8, 0, 0]
    layout = layout_of(counts).to("cuda")
    q, k, v = (torch.randn(sum(counts), 8, 64, device="cuda", requires_grad=True) for _ in range(3))
    upstream = torch.randn(sum(counts), 8 * 64, device="cuda")
    expected = attend(q, k, v, layout, layout, causal=causal)
    expected_grads = torch.autograd.grad(expected, (q, k, v), upstream)
    actual = attend(*(x.bfloat16() for x in (q, k, v)), layout, layout, causal=causal)
    actual_grads = torch.autograd.grad(actual, (q, k, v), upstream.bfloat16())
    torch.testing.assert_close(actual.float(), expected, atol=0.03, rtol=0.03)
    for ours, padded in zip(actual_grads, expected_grads, strict=True):
        torch.testing.assert_close(ours, padded, atol=0.06, rtol=0.06)

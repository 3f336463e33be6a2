"""Attention on packed sentences, compared with the formula for each sentence.

Shapes: T tokens, H heads, D features of a head.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.batching.packed_batch import SequenceLayout, pack
from dragoman.model.attention import attend, rotate, rotation_at
from dragoman.model.dropout import Dropout, draw_seeds, seed_dropout

HEADS, HEAD_SIZE = 2, 8
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


def layout_of(counts: list[int]) -> SequenceLayout:
    return pack(torch.zeros(sum(counts), dtype=torch.long), torch.tensor(counts)).layout


def random_heads(tokens: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(tokens, HEADS, HEAD_SIZE, dtype=dtype, requires_grad=True)


def reference_attention(q: Tensor, k: Tensor, v: Tensor, counts: list[tuple[int, int]], causal: bool) -> Tensor:
    """The formula softmax(q k' / sqrt(D)) v, one sentence at a time."""
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
def test_packed_attention_and_its_gradients_equal_the_formula(counts: list[tuple[int, int]]) -> None:
    q, k, v = (random_heads(n) for n in (sum(a for a, _ in counts), *[sum(b for _, b in counts)] * 2))
    expected = reference_attention(q, k, v, counts, causal=False)
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
def test_causal_attention_and_its_gradients_equal_the_formula(counts: list[int]) -> None:
    q, k, v = (random_heads(sum(counts)) for _ in range(3))
    layout = layout_of(counts)
    expected = reference_attention(q, k, v, [(n, n) for n in counts], causal=True)
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
def test_explicit_attention_agrees_with_torchs(counts: list[int], causal: bool) -> None:
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
    drop, draws = Dropout(0.2), []
    seeds = seed_dropout(drop, torch.device("cpu"))
    for step in range(4000):
        draw_seeds(seeds, 1, step)
        draws.append(attend(q, k, v, layout, layout, causal=True, drop=drop))
    expected = attend(q, k, v, layout, layout, causal=True)
    assert torch.stack(draws).std(0).max() > 0.05
    torch.testing.assert_close(torch.stack(draws).mean(0), expected, atol=0.06, rtol=0)


def test_trailing_empty_sentences_change_nothing_and_give_no_nan() -> None:
    q, k, v = (random_heads(8) for _ in range(3))
    expected = attend(q, k, v, layout_of([5, 3]), layout_of([5, 3]))
    actual = attend(q, k, v, layout_of([5, 3, 0, 0]), layout_of([5, 3, 0, 0]))
    torch.testing.assert_close(actual, expected)
    gradients = torch.autograd.grad(actual.sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_sentences_of_equal_length_need_no_padding_index() -> None:
    layout = layout_of([4, 4, 4])
    q, k, v = (random_heads(12) for _ in range(3))
    attend(q, k, v, layout, layout)
    assert layout.has_equal_lengths
    assert "padding" not in vars(layout)


def test_rotation_equals_that_of_hugging_faces_llama() -> None:
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
def test_rotated_scores_depend_only_on_distance(shift: int) -> None:
    torch.manual_seed(shift)
    q, k = torch.randn(2, 1, 1, HEAD_SIZE, dtype=torch.float64)
    here = rotate(q, rotation_at(torch.tensor([5]), HEAD_SIZE)) * rotate(k, rotation_at(torch.tensor([2]), HEAD_SIZE))
    there = rotate(q, rotation_at(torch.tensor([5 + shift]), HEAD_SIZE)) * rotate(
        k, rotation_at(torch.tensor([2 + shift]), HEAD_SIZE)
    )
    torch.testing.assert_close(here.sum(), there.sum(), atol=1e-5, rtol=1e-5)


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

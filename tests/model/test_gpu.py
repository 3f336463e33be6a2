"""Triton kernels and CUDA graphs on a GPU, compared with the formulas in float64 or with the plain implementation.

Shapes: Tq queries, Tk keys, H heads, D features of a head, V vocabulary.
"""

import pytest
import torch
from torch import nn

from dragoman.batching.packed_batch import (
    IGNORED_LABEL,
    Batch,
    pack_sentences,
    pad_to_size,
)
from dragoman.decoding import beam_search
from dragoman.decoding.beam_search import search
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.model.architecture import Architecture
from dragoman.model.dropout import (
    Dropout,
    draw_seeds,
    keep_mask,
    keep_weights_mask,
    seed_dropout,
)
from dragoman.model.loss import _LinearCrossEntropy, linear_cross_entropy
from dragoman.model.residual import add_and_norm
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

from .kernel_references import (
    CLASSIC,
    MARIAN,
    MODERN,
    halves_of,
    make_model,
    random_batch,
    reference_weights,
    relative_error,
)

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda")
kinds = pytest.mark.parametrize("architecture", [CLASSIC, MODERN, MARIAN], ids=["classic", "modern", "marian"])


def at_fixed_size(batch: Batch) -> Batch:
    return pad_to_size(batch, 4096, 4224, 128).to(GPU)


@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_and_its_gradients_equal_the_formula(causal: bool, rate: float) -> None:
    from dragoman.model.kernels import attention_kernel

    batch = at_fixed_size(random_batch(1, pairs=20))
    queries, keys = batch.target.layout, batch.target.layout if causal else batch.source.layout
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(side.positions.shape[0], 2, 32, device=GPU).bfloat16().requires_grad_()
        for side in (queries, keys, keys)
    )
    inputs = (torch.stack([q, k, v], dim=1), None) if causal else (q[:, None], torch.stack([k, v], dim=1))
    seed = torch.tensor([12345, -6789], dtype=torch.int32, device=GPU)
    out, _ = attention_kernel.attend(
        *inputs, queries.sentence_ids, keys.sentence_ids, queries.cu_seqlens, keys.cu_seqlens,
        queries.places, keys.positions, causal, rate, seed,
    )  # fmt: skip
    upstream = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, (q, k, v), upstream)]
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    reference = torch.einsum(
        "hqk,khd->qhd", reference_weights(wide[0], wide[1], queries, keys, causal, rate, seed), wide[2]
    )  # fmt: skip
    expected = [reference, *torch.autograd.grad(reference, wide, upstream.double())]
    for ours, theirs in zip(found, expected, strict=True):
        assert relative_error(ours, theirs) < 1e-2


@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("centred", [True, False])
def test_residual_addition_and_norm_equal_the_plain_implementation(centred: bool, rate: float, post_norm: bool) -> None:
    norm = (nn.LayerNorm(96) if centred else nn.RMSNorm(96, eps=1e-6)).to(GPU)
    drop = Dropout(rate).train()
    drop.seed = torch.tensor([12345, -6789], dtype=torch.int32, device=GPU)
    torch.manual_seed(0)
    places = torch.randperm(100_000, device=GPU)[:5000].int()
    for weight in norm.parameters():
        nn.init.normal_(weight)
    x, y = torch.randn(5000, 96, device=GPU), torch.randn(5000, 96, device=GPU).bfloat16()
    upstream = torch.randn_like(x), torch.randn_like(y)
    results = []
    for kind in (None, torch.float64):
        inputs = [each.detach().to(kind or each.dtype).requires_grad_() for each in (x, y)]
        outputs = add_and_norm(*inputs, drop, norm.to(kind) if kind else norm, places, post_norm=post_norm)
        gradients = torch.autograd.grad(
            outputs, [*inputs, *norm.parameters()], [g.to(out.dtype) for g, out in zip(upstream, outputs, strict=True)]
        )
        results.append([*outputs, *gradients])
    for ours, theirs in zip(*results, strict=True):
        assert relative_error(ours, theirs) < 1e-2


@pytest.mark.parametrize("has_bias", [False, True])
def test_loss_and_its_gradients_equal_the_plain_implementation(has_bias: bool) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(5000, 64, device=GPU).bfloat16().requires_grad_()
    weight = (torch.randn(1000, 64, device=GPU) * 0.2).requires_grad_()
    labels = torch.randint(0, 1000, (5000,), device=GPU)
    labels[::7] = IGNORED_LABEL
    bias = torch.randn(1000, device=GPU) if has_bias else None
    loss, nll = linear_cross_entropy(hidden, weight, labels, 0.1, bias)
    found = torch.autograd.grad(loss, (hidden, weight))
    wide_hidden, wide_weight = (x.detach().bfloat16().double().requires_grad_() for x in (hidden, weight))
    their_loss, their_nll = _LinearCrossEntropy.apply(wide_hidden, wide_weight, labels, 0.1, bias)
    expected = torch.autograd.grad(their_loss, (wide_hidden, wide_weight))
    assert float(loss) == pytest.approx(float(their_loss), rel=1e-4)
    assert float(nll) == pytest.approx(float(their_nll), rel=1e-4)
    for ours, theirs in zip(found, expected, strict=True):
        assert relative_error(ours, theirs) < 1e-2


@kinds
def test_fixed_sizes_change_neither_loss_nor_gradients(architecture: Architecture) -> None:
    model = make_model(architecture, GPU).eval()
    batch = random_batch(2)
    results = []
    for each in (batch.to(GPU), at_fixed_size(batch)):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = model(each, 0.1)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.trainable_parameters)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert relative_error(ours, theirs) < 3e-2


@kinds
def test_a_compiled_model_has_the_same_dropout_masks(architecture: Architecture) -> None:
    model = make_model(architecture, GPU).train()
    draw_seeds(seed_dropout(model, GPU), 1, step=1)
    batch = at_fixed_size(random_batch(3))
    results = []
    for compiled in (False, True):
        if compiled:
            model.compile_for_training()
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = model(batch, 0.1)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.trainable_parameters)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert relative_error(ours, theirs) < 0.1  # Rounding differs; with other masks it would be about 0.5.


def test_dropout_masks_of_a_gpu_are_those_of_a_cpu() -> None:
    seed, places = torch.tensor([12345, -6789], dtype=torch.int32), torch.randperm(100_000)[:2000].int()
    for rate in (0.1, 0.5):
        expected = keep_mask(torch.empty(2000, 97), places, seed, rate)
        found = keep_mask(torch.empty(2000, 97, device=GPU), places.to(GPU), seed.to(GPU), rate)
        assert torch.equal(found.cpu(), expected)
        weights, queries = torch.empty(20, 4, 100, 50), places.view(20, 100)
        found = keep_weights_mask(weights.to(GPU), queries.to(GPU), seed.to(GPU), rate)
        assert torch.equal(found.cpu(), keep_weights_mask(weights, queries, seed, rate))


@kinds
def test_kernels_have_the_dropout_of_plain_micro_batches(architecture: Architecture) -> None:
    """The loss and the gradients of a batch in bf16 with kernels, and of its halves in float32 without."""
    model = make_model(architecture, GPU).train()
    draw_seeds(seed_dropout(model, GPU), 1, step=1)
    whole = random_batch(3)
    results = []
    for parts, precision in (([at_fixed_size(whole)], torch.bfloat16), (halves_of(whole), None)):
        model.zero_grad()
        with torch.autocast("cuda", precision or torch.bfloat16, enabled=precision is not None):
            losses = [model(part.to(GPU), 0.1)[0] for part in parts]
        sum(losses).backward()
        results.append([sum(losses).detach(), *(parameter.grad for parameter in model.trainable_parameters)])
    for ours, theirs in zip(*results, strict=True):
        assert relative_error(ours, theirs) < 0.2  # Rounding differs; with other masks it would be about 0.5.


@kinds
def test_a_search_with_cuda_graphs_equals_a_plain_search(
    architecture: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(architecture, GPU).eval()
    prefix = (7,) if architecture is MARIAN else ()
    special_tokens = SpecialTokens(1, 2, (0, 1, 3), prefix)
    monkeypatch.setattr(beam_search, "GRAPH_MIN_SENTENCES", 8)  # so that the batch shrinks
    sources = [torch.randint(4, 512, (length,)).tolist() for length in range(1, 60)]
    options = DecodingSettings(beam=4, max_length_ratio=0.5)
    with torch.autocast("cuda", torch.bfloat16):
        assert beam_search.can_use_cuda_graphs(model, options)
        captured = search(model, pack_sentences(sources), options, special_tokens, n_best=2)
        monkeypatch.setattr(beam_search, "can_use_cuda_graphs", lambda *_: False)
        plain = search(model, pack_sentences(sources), options, special_tokens, n_best=2)
    ours, theirs = ([best.score for best, *_ in each] for each in (captured, plain))
    assert ours == pytest.approx(theirs, rel=2e-2)
    same = sum(a[0].tokens == b[0].tokens for a, b in zip(captured, plain, strict=True))
    assert same >= 0.7 * len(sources)


def test_searches_reuse_the_memory_of_earlier_ones() -> None:
    torch.manual_seed(0)
    model = Transformer(CLASSIC).to(GPU).eval()
    sources = [torch.randint(4, 512, (length % 60 + 1,)).tolist() for length in range(300)]
    reserved = []
    for _ in range(6):
        with torch.autocast("cuda", torch.bfloat16):
            search(
                model,
                pack_sentences(sources),
                DecodingSettings(beam=4, max_length_ratio=0.5),
                SpecialTokens(1, 2, (0, 1, 3)),
            )
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] == reserved[2]

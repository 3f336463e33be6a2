"""The Triton kernels in Triton's interpreter, in float32: `test_kernels` runs this file in a process of its own.

Each test compares with the formula or the plain implementation, for sizes that hypothesis draws, and checks the memory
that the kernels touch.

Shapes: Tq queries, Tk keys, H heads, D features of a head, V vocabulary, N hypotheses.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from benchmarks.fine_tuning import compare_logits, compare_translations
from benchmarks.foreign_models import make_m2m100, make_marian, make_nllb
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.batching.packed_batch import (
    IGNORED_LABEL,
    Batch,
    SequenceLayout,
    pack,
    pack_sentences,
    pad_to_size,
)
from dragoman.decoding.beam_search import search
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.model import residual, transformer
from dragoman.model.architecture import Architecture
from dragoman.model.dropout import Dropout, draw_seeds, seed_dropout
from dragoman.model.kernels import attention_kernel, decoding_kernel, loss_kernel, residual_kernel
from dragoman.model.kv_cache import IndexedState
from dragoman.settings import DecodingSettings

from ..models import LINES, PAIRS
from .checked_memory import OutOfBoundsError, checked_memory
from .kernel_references import CLASSIC, MARIAN, MODERN, make_model, random_batch, reference_weights, relative_error

CPU = torch.device("cpu")
SEED = torch.tensor([12345, -6789], dtype=torch.int32)
lengths = st.lists(st.integers(1, 90), min_size=1, max_size=6)
rates = st.sampled_from([0.0, 0.2])
some_examples = settings(max_examples=12)
kinds = pytest.mark.parametrize("architecture", [CLASSIC, MODERN, MARIAN], ids=["classic", "modern", "marian"])


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    with checked_memory():
        yield


def layout_of(lengths: list[int], filler: int, first_place: int = 0) -> SequenceLayout:
    """A layout of fixed size, with filler tokens behind the last sentence."""
    tokens, sizes = torch.zeros(sum(lengths), dtype=torch.int64), torch.tensor(lengths)
    packed = pack(tokens, sizes, sizes.cumsum(0) - sizes + first_place)
    size = sum(lengths) + filler
    return pad_to_size(Batch(packed, packed, tokens), size, size, 128).target.layout


@some_examples
@given(
    lengths=lengths, others=st.randoms(use_true_random=False), filler=st.integers(0, 70), heads=st.integers(1, 3),
    size=st.sampled_from([16, 32]), causal=st.booleans(), rate=rates, place=st.sampled_from([0, 2**30]),
)  # fmt: skip
def test_attention_and_its_gradients_equal_the_formula(lengths, others, filler, heads, size, causal, rate, place):
    queries = layout_of(lengths, filler, place)
    keys = queries if causal else layout_of([others.randint(1, 90) for _ in lengths], filler // 2)
    torch.manual_seed(0)
    q, k, v = (torch.randn(len(each.positions), heads, size, requires_grad=True) for each in (queries, keys, keys))
    inputs = (torch.stack([q, k, v], dim=1), None) if causal else (q[:, None], torch.stack([k, v], dim=1))
    out, _ = attention_kernel.attend(
        *inputs, queries.sentence_ids, keys.sentence_ids, queries.cu_seqlens, keys.cu_seqlens,
        queries.places, keys.positions, causal, rate, SEED,
    )  # fmt: skip
    upstream = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, (q, k, v), upstream)]
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    weights = reference_weights(wide[0], wide[1], queries, keys, causal, rate, SEED)
    reference = torch.einsum("hqk,khd->qhd", weights, wide[2])
    expected = [reference, *torch.autograd.grad(reference, wide, upstream.double())]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours.double(), theirs, atol=1e-5)


@some_examples
@given(
    tokens=st.integers(1, 40), features=st.integers(2, 130), centred=st.booleans(), rate=rates, post_norm=st.booleans()
)
def test_residual_addition_and_norm_equal_the_plain_implementation(tokens, features, centred, rate, post_norm):
    torch.manual_seed(0)
    norm = nn.LayerNorm(features) if centred else nn.RMSNorm(features, eps=1e-6)
    for weight in norm.parameters():
        nn.init.normal_(weight)
    drop = Dropout(rate).train()
    drop.seed = SEED
    places = torch.randperm(100_000)[:tokens].int()
    x, y, *upstream = (torch.randn(tokens, features) for _ in range(4))
    results = []
    for kernels in (True, False):
        inputs = [each.detach().requires_grad_() for each in (x, y)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(residual, "can_run_kernels", lambda _, kernels=kernels: kernels)
            outputs = residual.add_and_norm(*inputs, drop, norm, places, post_norm=post_norm)
        results.append([*outputs, *torch.autograd.grad(outputs, [*inputs, *norm.parameters()], upstream)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)


def test_more_tokens_than_strips_are_all_in_the_gradients_of_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual_kernel, "STRIPS", 3)
    test_residual_addition_and_norm_equal_the_plain_implementation.hypothesis.inner_test(39, 24, True, 0.2, False)


@some_examples
@given(tokens=st.integers(1, 12), vocabulary=st.integers(2, 100), smoothing=st.sampled_from([0.0, 0.1]))
def test_losses_and_gradients_equal_the_formula(tokens, vocabulary, smoothing):
    torch.manual_seed(0)
    logits = (3 * torch.randn(tokens, vocabulary)).requires_grad_()
    labels = torch.randint(0, vocabulary, (tokens,))
    labels[::3] = IGNORED_LABEL
    grad, sums = torch.empty(tokens, vocabulary), torch.empty(tokens, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_kernel, "BLOCK", 32)  # Several blocks, of which the last is not full.
        loss_kernel.losses_and_gradients(logits.detach(), labels, smoothing, grad, sums)
    log_p = torch.log_softmax(logits, 1)
    counts = labels >= 0
    nll = -log_p.gather(1, labels.clamp(min=0)[:, None])[:, 0] * counts
    uniform = -log_p.mean(1) * counts
    ((1 - smoothing) * nll + smoothing * uniform).sum().backward()
    assert torch.allclose(sums, torch.stack([nll, uniform], 1), atol=1e-5)
    assert torch.allclose(grad, logits.grad, atol=1e-5)


def softmax_over(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[H, D] attends to [T, H, D]."""
    weights = torch.softmax(torch.einsum("hd,thd->ht", q, k) * q.shape[1] ** -0.5, 1)
    return torch.einsum("ht,thd->hd", weights, v).flatten()


@some_examples
@given(hypotheses=st.integers(1, 6), capacity=st.integers(1, 70), heads=st.integers(1, 3), part=st.floats(0, 1))
def test_attention_to_the_past_equals_the_formula(hypotheses, capacity, heads, part):
    torch.manual_seed(0)
    step = int(part * (capacity - 1))
    q = torch.randn(hypotheses, heads, 16)
    keys, values = torch.randn(2, hypotheses, capacity, heads, 16)
    rows = torch.randint(0, hypotheses, (hypotheses, capacity), dtype=torch.int32)
    rows[:, step + 1 :] = 2**30  # Not written yet.
    found = decoding_kernel.attend_to_past(q, keys, values, rows, torch.tensor([step]))
    positions = torch.arange(step + 1)
    for number in range(hypotheses):
        past = rows[number, : step + 1].long(), positions
        assert torch.allclose(found[number], softmax_over(q[number], keys[past], values[past]), atol=1e-5)


@some_examples
@given(lengths=lengths, beam=st.integers(1, 20), heads=st.integers(1, 3), seed=st.integers(0, 100))
def test_attention_to_the_source_equals_the_formula(lengths, beam, heads, seed):
    torch.manual_seed(seed)
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    remaining = torch.randperm(len(lengths))[: 1 + seed % len(lengths)].int()
    q = torch.randn(len(remaining) * beam, heads, 16)
    keys, values = torch.randn(2, sum(lengths), heads, 16)
    found = decoding_kernel.attend_to_source(q, keys, values, bounds, remaining, beam)
    ranges = [slice(*each) for each in pairwise(bounds.tolist())]
    for number in range(len(q)):
        tokens = ranges[int(remaining[number // beam])]
        assert torch.allclose(found[number], softmax_over(q[number], keys[tokens], values[tokens]), atol=1e-5)


@kinds
def test_a_model_with_kernels_equals_the_plain_one(architecture: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients, with dropout at all places."""
    model = make_model(architecture, CPU).train()
    draw_seeds(seed_dropout(model, CPU), 1, step=1)
    batch = random_batch(3, pairs=3)
    monkeypatch.setattr(residual_kernel, "TILE", 64)  # Fewer programs: each takes as long as a small one.
    results = []
    for each, kernels in ((batch, False), (pad_to_size(batch, 256, 320, 128), True)):
        monkeypatch.setattr(residual, "can_run_kernels", lambda _, kernels=kernels: kernels)
        model.zero_grad()
        loss, _ = model(each, 0.1)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.trainable_parameters)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert relative_error(ours, theirs) < 1e-4


@kinds
def test_a_search_with_kernels_finds_the_same_translations(
    architecture: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(architecture, CPU).eval()
    torch.manual_seed(1)
    sources = pack_sentences([torch.randint(4, 512, (length,)).tolist() for length in (3, 40, 1, 17)])
    prefix = (7,) if architecture is MARIAN else ()
    found = []
    for kernels in (False, True):
        monkeypatch.setattr(transformer, "can_run_kernels", lambda _, kernels=kernels: kernels)
        monkeypatch.setattr(residual, "can_run_kernels", lambda _, kernels=kernels: kernels)
        assert isinstance(model.start_decoding(sources, 2, 9), IndexedState) == kernels
        options = DecodingSettings(beam=2, max_length_ratio=0.3)
        found.append(search(model, sources, options, SpecialTokens(1, 2, (0, 1, 3), prefix), n_best=2))
    for plain, with_kernels in zip(*found, strict=True):
        assert [each.tokens for each in with_kernels] == [each.tokens for each in plain]
        assert [each.score for each in with_kernels] == pytest.approx([each.score for each in plain], abs=1e-4)


@pytest.mark.parametrize("make_folder", [make_marian, make_m2m100, make_nllb])
def test_imported_models_compute_with_kernels_as_in_transformers(
    make_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, layers = make_folder(tmp_path / "model", PAIRS), []
    for module in (transformer, residual):
        monkeypatch.setattr(module, "can_run_kernels", lambda _, module=module: layers.append(module) or True)
    assert compare_logits(folder, LINES[:3]) <= 1e-5
    assert compare_translations(folder, LINES[:3], beam=1)[0] == 3
    assert {*layers} == {transformer, residual}


@triton.jit
def _copy(x, y, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    tl.store(y + columns, tl.load(x + columns, mask=columns < n), mask=columns < n)


@pytest.mark.parametrize(("x", "y", "what"), [(8, 16, "loads"), (16, 8, "stores")])
def test_kernels_that_leave_their_tensors_are_found(x: int, y: int, what: str) -> None:
    arrays = torch.zeros(64)  # One tensor, so that nothing else is overwritten.
    run: Callable[[int], None] = lambda n: _copy[(1,)](arrays[:x], arrays[32 : 32 + y], n, B=16)  # noqa: E731
    run(8)
    with pytest.raises(Exception, match=f"{OutOfBoundsError.__name__}.*{what} 4 of 12 elements"):
        run(12)

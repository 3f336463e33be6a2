"""The chunked loss, compared with torch's cross-entropy.

Shapes: T tokens, V vocabulary, d features.
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.batching.packed_batch import IGNORED_LABEL
from dragoman.model import loss as loss_module
from dragoman.model.loss import linear_cross_entropy


def random_inputs(T: int, V: int, d: int, ignored: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(T, d, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, d, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(V, (T,)).masked_fill(torch.rand(T) < ignored, IGNORED_LABEL)
    return hidden, weight, labels


def reference_sums(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    logits = F.linear(hidden, weight, bias)
    return (
        F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED_LABEL),
        F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED_LABEL),
    )


@settings(max_examples=100)
@given(
    T=st.integers(1, 12),
    V=st.integers(1, 9),
    d=st.integers(1, 5),
    chunk=st.integers(1, 13),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 1000),
    has_bias=st.booleans(),
)
def test_losses_and_gradients_equal_those_of_torch(
    *, T: int, V: int, d: int, chunk: int, ignored: float, smoothing: float, seed: int, has_bias: bool
) -> None:
    torch.manual_seed(seed)
    hidden, weight, labels = random_inputs(T, V, d, ignored)
    bias = torch.randn(V, dtype=weight.dtype) if has_bias else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_module, "CPU_CHUNK_TOKENS", chunk)
        actual = linear_cross_entropy(hidden, weight, labels, smoothing, bias)
    expected = reference_sums(hidden, weight, labels, smoothing, bias)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    actual_grads = torch.autograd.grad(actual[0] * 0.37, (hidden, weight))
    expected_grads = torch.autograd.grad(expected[0] * 0.37, (hidden, weight))
    torch.testing.assert_close(actual_grads, expected_grads, atol=1e-10, rtol=1e-10)


def test_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    hidden, weight, labels = random_inputs(5, 7, 3, ignored=0.3)
    assert torch.autograd.gradcheck(lambda h, w: linear_cross_entropy(h, w, labels, 0.1)[0], (hidden, weight))


def test_without_gradients_the_sums_are_the_same() -> None:
    hidden, weight, labels = random_inputs(9, 11, 4)
    expected = linear_cross_entropy(hidden, weight, labels, 0.1)
    with torch.no_grad():
        actual = linear_cross_entropy(hidden, weight, labels, 0.1)
    torch.testing.assert_close(actual, expected)
    assert not actual[0].requires_grad


def test_only_the_smoothed_sum_has_a_gradient() -> None:
    loss_sum, nll_sum = linear_cross_entropy(*random_inputs(3, 5, 2), smoothing=0.1)
    assert loss_sum.requires_grad
    assert not nll_sum.requires_grad


def test_ignored_tokens_get_no_gradient_even_if_they_are_not_finite() -> None:
    hidden, weight, labels = random_inputs(6, 5, 4)
    labels[2] = IGNORED_LABEL
    with torch.no_grad():
        hidden[2] = float("nan")
    loss_sum, _ = linear_cross_entropy(hidden, weight, labels, 0.1)
    loss_sum.backward()
    assert loss_sum.isfinite()
    assert torch.equal(hidden.grad[2], torch.zeros(4, dtype=torch.float64))
    assert weight.grad.isfinite().all()


def test_very_wrong_predictions_have_a_finite_loss() -> None:
    hidden = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    loss_sum, nll_sum = linear_cross_entropy(hidden, torch.eye(2), torch.tensor([1]), 0.1)
    assert nll_sum.item() == pytest.approx(1000)
    assert loss_sum.item() == pytest.approx(0.9 * 1000 + 0.1 * 500)


def check_autocast(device: str) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(300, 64, device=device, requires_grad=True)
    weight = (torch.randn(1000, 64, device=device) / 8).requires_grad_()
    labels = torch.randint(1000, (300,), device=device)
    expected = linear_cross_entropy(hidden, weight, labels, 0.1)
    expected_grads = torch.autograd.grad(expected[0], (hidden, weight))
    with torch.autocast(device, dtype=torch.bfloat16):
        actual = linear_cross_entropy(hidden, weight, labels, 0.1)
    actual_grads = torch.autograd.grad(actual[0], (hidden, weight))
    assert {x.dtype for x in (*actual, *actual_grads)} == {torch.float32}
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=0)
    for ours, exact in zip(actual_grads, expected_grads, strict=True):
        assert F.cosine_similarity(ours.flatten(), exact.flatten(), dim=0) > 0.999


def test_bfloat16_autocast_rounds_products_but_not_sums() -> None:
    check_autocast("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bfloat16_autocast_rounds_products_but_not_sums_on_cuda() -> None:
    check_autocast("cuda")

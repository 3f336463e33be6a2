import pytest
import torch
from torch import nn

from dragoman.training.muon import Muon, orthogonal


def test_muon_equals_torch_muon_for_single_matrices():
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in ((24, 16), (16, 24), (24, 16), (8, 8))]
    ours, theirs = ([nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = (
        Muon(ours, [1] * len(ours), weight_decay=0.1),
        torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(4):
        gradients = [torch.randn_like(matrix) for matrix in start]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.02
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    for a, b, before in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=0)  # bfloat16 rounds differently in batches
        assert (a - before).abs().max() > 0.01


def test_each_matrix_of_a_fused_projection_is_orthogonalised_by_itself():
    torch.manual_seed(0)
    start, gradient = torch.randn(3, 8, 8), torch.randn(3, 8, 8)
    fused = [nn.Parameter(start.flatten(0, 1).clone())]
    separate = [nn.Parameter(matrix.clone()) for matrix in start]
    for parameters, parts, gradients in (
        (fused, [3], [gradient.flatten(0, 1)]),
        (separate, [1] * 3, gradient.unbind()),
    ):
        optimizer = Muon(parameters, parts, weight_decay=0.0)
        optimizer.param_groups[0]["lr"] = 0.1
        for parameter, each in zip(parameters, gradients, strict=True):
            parameter.grad = each.clone()
        optimizer.step()
    torch.testing.assert_close(fused[0].detach(), torch.cat([parameter.detach() for parameter in separate]))


@pytest.mark.parametrize("shape", [(2, 48, 16), (2, 16, 48)])
def test_matrices_are_orthogonalised_in_float32_on_a_cpu(shape):
    torch.manual_seed(0)
    result = orthogonal(torch.randn(shape))
    assert result.dtype == torch.float32
    assert result.shape == shape
    singular_values = torch.linalg.svdvals(result)
    assert 0.5 < singular_values.min() <= singular_values.max() < 1.5

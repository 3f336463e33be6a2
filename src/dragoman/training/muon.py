"""Muon (Jordan et al. 2024): momentum updates of matrices, orthogonalised by Newton-Schulz iteration.

torch.optim.Muon processes one matrix at a time: two thousand small kernels per step. Here all matrices of the same
shape are batched. A fused projection holds several matrices, and each of them is orthogonalised by itself. Updates are
scaled to the size of AdamW updates, so that both use the same learning rate.
"""

import inspect
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial that moves singular values towards 1: steep at 0, close to 1 after five iterations."""
ADAMW_RMS = 0.2
"""Typical root mean square of an AdamW update, in units of the learning rate (Liu et al. 2025)."""
EPSILON = 1e-7

MatrixIndex = tuple[int, int]
"""Index of a parameter, and of a matrix in it."""


class Muon(torch.optim.Optimizer):
    """Muon for matrix parameters. `parts`: the number of matrices stacked in each parameter."""

    found_inf: Tensor | None = None
    """If set, on the parameters' device: 1 makes a step change nothing, as in torch's fused optimizers."""
    grad_scale: Tensor | None = None
    """If set, on the parameters' device: divisor of the gradients, as in torch's fused optimizers."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)  # As in `EagerAdamW`.

    def __init__(self, parameters: Sequence[nn.Parameter], parts: Sequence[int], weight_decay: float) -> None:
        super().__init__([{"params": list(parameters)}], {"lr": 0.0, "weight_decay": weight_decay})
        self._by_shape: dict[torch.Size, list[MatrixIndex]] = {}
        for number, (parameter, count) in enumerate(zip(parameters, parts, strict=True)):
            for part, matrix in enumerate(parameter.chunk(count)):
                self._by_shape.setdefault(matrix.shape, []).append((number, part))
        self._parts = list(parts)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (never used)
        group = self.param_groups[0]
        parameters: list[Tensor] = group["params"]
        momenta = [self._momentum_of(parameter) for parameter in parameters]
        gradients = self._gradients(parameters, momenta)
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        learning_rate = group["lr"] if self.found_inf is None else group["lr"] * (1 - self.found_inf)
        torch._foreach_mul_(parameters, 1 - learning_rate * group["weight_decay"])
        for shape, indexes in self._by_shape.items():
            matrices = torch.stack([updates[number].chunk(self._parts[number])[part] for number, part in indexes])
            directions = orthogonal(matrices) * (-learning_rate * ADAMW_RMS * math.sqrt(max(shape)))
            targets = [parameters[number].chunk(self._parts[number])[part] for number, part in indexes]
            torch._foreach_add_(targets, list(directions.unbind()))

    def _gradients(self, parameters: Sequence[Tensor], momenta: Sequence[Tensor]) -> list[Tensor]:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.grad_scale is not None:
            gradients = list(torch._foreach_div(gradients, self.grad_scale))
        if self.found_inf is None:
            return gradients
        # A gradient equal to the momentum leaves the momentum unchanged.
        skipping = self.found_inf > 0
        return [
            torch.where(skipping, momentum, gradient) for gradient, momentum in zip(gradients, momenta, strict=True)
        ]

    def _momentum_of(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately the nearest orthogonal matrices, [n, rows, columns], by Newton-Schulz iteration.

    bfloat16 on GPUs, float32 on CPUs: without bfloat16 units it is 7 to 18 times slower there. The choice depends on
    the kind of device alone, because all workers must compute the same update.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x

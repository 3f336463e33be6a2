"""Muon (Jordan et al. 2024): momentum updates of matrices, orthogonalised by Newton-Schulz iteration.

torch's own Muon processes the matrices one after the other: two thousand small kernels a step. Here all matrices of a
shape are batched. A fused projection holds several matrices, and each of them is orthogonalised by itself. Each update
is scaled to the size of an AdamW update, so that one learning rate suits both.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dragoman.model.precision import has_fast_bf16

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial that drives singular values towards 1: steep at 0, close to 1 after five iterations."""
ADAMW_RMS = 0.2
"""Typical root mean square of an AdamW update, in units of the learning rate (Liu et al. 2025)."""
EPSILON = 1e-7

Place = tuple[int, int]
"""Index of a parameter, and of a matrix in it."""


class Muon(torch.optim.Optimizer):
    """Muon for matrix parameters. `parts`: the number of matrices stacked in each parameter."""

    found_inf: Tensor | None = None
    """If set, on the parameters' device: 1 makes a step change nothing, as in torch's fused optimizers."""
    grad_scale: Tensor | None = None
    """Divisor of the gradients. It does not change the direction of an update, and the momentum only slightly."""

    def __init__(self, parameters: Sequence[nn.Parameter], parts: Sequence[int], weight_decay: float) -> None:
        super().__init__([{"params": list(parameters)}], {"lr": 0.0, "weight_decay": weight_decay})
        self._groups: dict[torch.Size, list[Place]] = {}
        for number, (parameter, count) in enumerate(zip(parameters, parts, strict=True)):
            for part, matrix in enumerate(parameter.chunk(count)):
                self._groups.setdefault(matrix.shape, []).append((number, part))
        self._parts = list(parts)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (never used)
        group = self.param_groups[0]
        parameters: list[Tensor] = group["params"]
        means = [self._mean(parameter) for parameter in parameters]
        gradients = self._gradients(parameters, means)
        torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, means, MOMENTUM)
        rate = group["lr"] if self.found_inf is None else group["lr"] * (1 - self.found_inf)
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        for shape, places in self._groups.items():
            matrices = torch.stack([updates[number].chunk(self._parts[number])[part] for number, part in places])
            directions = orthogonal(matrices) * (-rate * ADAMW_RMS * math.sqrt(max(shape)))
            targets = [parameters[number].chunk(self._parts[number])[part] for number, part in places]
            torch._foreach_add_(targets, list(directions.unbind()))

    def _gradients(self, parameters: Sequence[Tensor], means: Sequence[Tensor]) -> list[Tensor]:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.grad_scale is not None:
            gradients = list(torch._foreach_div(gradients, self.grad_scale))
        if self.found_inf is None:
            return gradients
        # A gradient equal to the momentum leaves it unchanged.
        skipping = self.found_inf > 0
        return [torch.where(skipping, mean, gradient) for gradient, mean in zip(gradients, means, strict=True)]

    def _mean(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        mean: Tensor = state["momentum_buffer"]
        return mean


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately the nearest orthogonal matrices, [n, rows, columns], by Newton-Schulz iteration.

    bfloat16 where the hardware multiplies it, float32 elsewhere: without such units bfloat16 is 7 to 18 times slower.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if has_fast_bf16(matrices.device) else torch.float32)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x

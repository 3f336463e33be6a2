"""Muon (Jordan et al. 2024): updates of matrices whose directions all count alike.

torch has one too, which takes the matrices one after the other: two thousand small kernels a step. Here all matrices
of a shape go through the products together. A fused projection is several matrices that only lie together, and each
of them is taken by itself. Each update is scaled to the size that AdamW's would have, so that one rate suits both.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ROUNDS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial that drives singular values towards 1: steep at 0, and near enough to 1 after five rounds."""
ADAMW_SIZE = 0.2
"""Root mean square of what AdamW typically changes a weight by, in units of the rate (Liu et al. 2025)."""
EPSILON = 1e-7

Place = tuple[int, int]
"""A parameter by its number, and one of the matrices in it."""


class Muon(torch.optim.Optimizer):
    """`parts` says of how many matrices, one on top of the other, each parameter consists."""

    found_inf: Tensor | None = None
    """Where it is set, on the parameters' device: 1 lets a step change nothing, as for torch's fused optimizers."""
    grad_scale: Tensor | None = None
    """What gradients are divided by; it makes no difference to the direction of an update, and little to the mean."""

    def __init__(self, parameters: Sequence[nn.Parameter], parts: Sequence[int], weight_decay: float) -> None:
        super().__init__([{"params": list(parameters)}], {"lr": 0.0, "weight_decay": weight_decay})
        self._groups: dict[torch.Size, list[Place]] = {}
        for number, (parameter, count) in enumerate(zip(parameters, parts, strict=True)):
            for part, matrix in enumerate(parameter.chunk(count)):
                self._groups.setdefault(matrix.shape, []).append((number, part))
        self._parts = list(parts)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 (none is ever given)
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
            directions = orthogonal(matrices) * (-rate * ADAMW_SIZE * math.sqrt(max(shape)))
            targets = [parameters[number].chunk(self._parts[number])[part] for number, part in places]
            torch._foreach_add_(targets, list(directions.unbind()))

    def _gradients(self, parameters: Sequence[Tensor], means: Sequence[Tensor]) -> list[Tensor]:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.grad_scale is not None:
            gradients = list(torch._foreach_div(gradients, self.grad_scale))
        if self.found_inf is None:
            return gradients
        # A gradient that equals the mean leaves it as it is.
        skipping = self.found_inf > 0
        return [torch.where(skipping, mean, gradient) for gradient, mean in zip(gradients, means, strict=True)]

    def _mean(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        mean: Tensor = state["momentum_buffer"]
        return mean


def orthogonal(matrices: Tensor) -> Tensor:
    """About the nearest matrices with orthogonal rows or columns, [n, rows, columns] bfloat16, by Newton and Schulz."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x

"""Exponential moving average of the weights, less noisy than the weights of a single step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class EMA:
    """An exponential moving average of the weights that are trained, which can be swapped with them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        named = model.named_parameters()
        self._parameters = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.weights = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int, weights: Sequence[Tensor]) -> None:
        """Move the average towards weights, by parameter, that are equal on all workers."""
        # A lower decay in the first steps: otherwise the random initial weights would dominate the average.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), list(weights), 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap the model's weights and the average; a second call swaps them back."""
        for name, parameter in self._parameters.items():
            current = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(current)

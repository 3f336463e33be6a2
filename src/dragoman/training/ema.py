"""Exponential moving average of the weights: smoother than any single step's."""

import torch
from torch import nn


class EMA:
    """An average that follows the model's weights, and can trade places with them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = dict(model.named_parameters())
        self.weights = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        # A shorter memory early on: the average would otherwise hold on to the random initial weights.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), list(self._parameters.values()), 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap the model's weights and the average; a second call swaps them back."""
        for name, parameter in self._parameters.items():
            kept = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(kept)

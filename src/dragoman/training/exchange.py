"""The only place where gradients cross from worker to worker."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dragoman.training.cluster import Cluster


class PlainExchange:
    """Sums gradients as they are, in one message, with whatever small sums travel along."""

    def __init__(self, cluster: Cluster, parameters: Sequence[nn.Parameter]) -> None:
        self._cluster = cluster
        self._parameters = list(parameters)

    @torch.no_grad()
    def __call__(self, extras: Tensor) -> Tensor:
        """Replace every gradient by its sum over all workers, and give the sums of `extras`.

        Each worker's gradient is already divided by the tokens of the whole batch, so that the sum is exact whatever
        the shares. A worker without a share has no gradients and adds nothing.
        """
        gradients = [_gradient(parameter) for parameter in self._parameters]
        if self._cluster.world == 1:
            return extras
        message = torch.cat([extras, *(gradient.reshape(-1) for gradient in gradients)])
        self._cluster.sum(message)
        start = len(extras)
        for gradient in gradients:
            gradient.copy_(message[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return message[: len(extras)]


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad

"""Flat tensors: many tensors as one message, and back."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of all values in one vector."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def unflatten_into(message: Tensor, tensors: Sequence[Tensor]) -> None:
    """Write a vector's values into the tensors."""
    parts = torch.split(message, [tensor.numel() for tensor in tensors])
    torch._foreach_copy_(list(tensors), [part.view_as(tensor) for tensor, part in zip(tensors, parts, strict=True)])


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter; zeros for a worker that had no pairs in this batch."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def split_evenly(parameters: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Views of all parameters in `count` fragments of about equal size, in order."""
    total = sum(parameter.numel() for parameter in parameters)
    bounds = [total * number // count for number in range(count + 1)]
    fragments: list[list[Tensor]] = [[] for _ in range(count)]
    start = 0
    for parameter in parameters:
        flat = parameter.detach().view(-1)
        for number in range(count):
            low, high = max(bounds[number] - start, 0), min(bounds[number + 1] - start, len(flat))
            if low < high:
                fragments[number].append(flat[low:high])
        start += len(flat)
    return [fragment for fragment in fragments if fragment]

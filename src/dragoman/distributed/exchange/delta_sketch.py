"""Random projections of the workers' changes of the weights, from which all learn how much these changes differ.

A sum of projections is the projection of the sum, so a short message is enough, and what quantization does to the
changes themselves does not count: its noise would look like agreement.
"""

import torch
from torch import Tensor

PROJECTIONS = 61
"""Each has the same expected square as a change. A prime, so that rows of different matrices do not fall together."""
SKETCH_SIZE = PROJECTIONS + 1
"""The projections, and their squared norm."""


class DeltaSketch:
    """Projections of vectors of one length, the same on all workers."""

    def __init__(self, length: int, device: torch.device) -> None:
        self._rows = -(-length // PROJECTIONS)
        # On the CPU: generators of other devices draw other numbers.
        generator = torch.Generator().manual_seed(length)
        self._signs = (2.0 * torch.randint(2, (1, self._rows), generator=generator) - 1).to(device)

    def of(self, delta: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(delta, (0, self._rows * PROJECTIONS - len(delta)))
        projections = (self._signs @ padded.view(self._rows, PROJECTIONS)).flatten()
        return torch.cat([projections, projections.square().sum().view(1)])


def norm_ratio(summed: Tensor, workers: int) -> float | None:
    """Squared norm of the mean change over the mean squared norm of the workers' own, from 1 / workers to 1.

    `summed`: the sum of all workers' sketches. None if no worker has changed anything.
    """
    total = float(summed[:PROJECTIONS].double().square().sum())
    own = float(summed[PROJECTIONS]) * workers
    return total / own if own > 0 else None

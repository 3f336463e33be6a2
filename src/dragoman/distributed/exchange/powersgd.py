"""PowerSGD (Vogels et al. 2019): each gradient matrix is sent as the product of two low-rank factors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.synchronous import all_reduce_plain

SEED = 20_190_531
"""Of the first right factors, which must be equal on all workers."""


class PowerSgd:
    """Low-rank all-reduce with error feedback: the residual is added to the next step's gradient."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._residuals: list[Tensor] = []
        self._right: list[Tensor] = []
        """Right factor of each gradient matrix; a step's result is the next step's start."""

    def __call__(self, cluster: Cluster, stats: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        large = [gradient for gradient in gradients if self._compresses(gradient)]
        small = [gradient for gradient in gradients if not self._compresses(gradient)]
        if len(self._residuals) != len(large):
            self._reset(large)
        targets = [gradient + residual for gradient, residual in zip(large, self._residuals, strict=True)]
        left = [matrix @ right for matrix, right in zip(targets, self._right, strict=True)]
        stats = all_reduce_plain(cluster, stats, [*small, *left])
        left = [torch.linalg.qr(matrix).Q for matrix in left]
        self._right = [matrix.mT @ basis for matrix, basis in zip(targets, left, strict=True)]
        all_reduce_plain(cluster, stats.new_empty(0), self._right)
        for gradient, target, basis, right, residual in zip(
            large, targets, left, self._right, self._residuals, strict=True
        ):
            torch.mm(basis, right.mT, out=gradient)
            torch.sub(target, gradient, alpha=1 / cluster.world_size, out=residual)
        return stats

    def _reset(self, large: Sequence[Tensor]) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._residuals = [torch.zeros_like(gradient) for gradient in large]
        self._right = [
            torch.randn(gradient.shape[1], self._rank, generator=generator).to(gradient.device) for gradient in large
        ]

    def _compresses(self, gradient: Tensor) -> bool:
        return gradient.ndim == 2 and sum(gradient.shape) * self._rank < gradient.numel()

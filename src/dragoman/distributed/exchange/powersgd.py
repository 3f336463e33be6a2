"""PowerSGD (Vogels et al. 2019): each gradient matrix is sent as the product of two low-rank factors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.synchronous import all_reduce_plain
from dragoman.distributed.step_stats import LOSSES

SEED = 20_190_531
"""Seed of the first right factors, which must be equal on all workers."""


class PowerSgd:
    """Low-rank all-reduce with error feedback: the residual is added to the next step's gradient.

    All workers skip a step whose loss or gradient norm is not finite. It leaves the residuals and the factors as they
    were.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._residuals: list[Tensor] = []
        self._right: list[Tensor] = []
        """Right factor of each gradient matrix: the result of one step is the start of the next."""

    def __call__(self, cluster: Cluster, stats: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        large = [gradient for gradient in gradients if self._compresses(gradient)]
        small = [gradient for gradient in gradients if not self._compresses(gradient)]
        if len(self._residuals) != len(large):
            self._reset(large)
        targets = [gradient + residual for gradient, residual in zip(large, self._residuals, strict=True)]
        left = [matrix @ right for matrix, right in zip(targets, self._right, strict=True)]
        stats = all_reduce_plain(cluster, stats, [*small, *left])
        if not _all_finite([stats[:LOSSES], *small, *left]):
            for gradient in large:
                gradient.fill_(torch.nan)
            return stats
        bases = [torch.linalg.qr(matrix).Q for matrix in left]
        right = [matrix.mT @ basis for matrix, basis in zip(targets, bases, strict=True)]
        all_reduce_plain(cluster, stats.new_empty(0), right)
        for gradient, basis, factor in zip(large, bases, right, strict=True):
            torch.mm(basis, factor.mT, out=gradient)
        if torch.nn.utils.get_total_norm(gradients).isfinite():
            self._right = right
            self._residuals = [
                target.sub_(gradient, alpha=1 / cluster.world_size)
                for target, gradient in zip(targets, large, strict=True)
            ]
        return stats

    def _reset(self, large: Sequence[Tensor]) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._residuals = [torch.zeros_like(gradient) for gradient in large]
        self._right = [
            torch.randn(gradient.shape[1], self._rank, generator=generator).to(gradient.device) for gradient in large
        ]

    def _compresses(self, gradient: Tensor) -> bool:
        return gradient.ndim == 2 and sum(gradient.shape) * self._rank < gradient.numel()


def _all_finite(tensors: Sequence[Tensor]) -> bool:
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())

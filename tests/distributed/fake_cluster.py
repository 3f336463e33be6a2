"""A worker without connections, whose rank a test sets."""

import torch

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import WorkersLostError


class FakeCluster(Cluster):
    """A single worker that may claim any rank. If elastic, it survives losses."""

    def __init__(self, worker: int = 0, rank: int = 0, *, elastic: bool = False) -> None:
        super().__init__(worker, 1, 1, torch.device("cpu"))
        self._rank = rank
        self._elastic = elastic

    @property
    def rank(self) -> int:
        return self._rank

    @rank.setter
    def rank(self, rank: int) -> None:
        self._rank = rank

    @property
    def survives_losses(self) -> bool:
        return self._elastic

    def leave_world(self, lost: WorkersLostError) -> None:
        if not self._elastic:
            raise lost

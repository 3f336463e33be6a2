"""This worker's part of each step's gradient: its share of the batch, forwards and backwards through the model."""

from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.config import Training
from dragoman.events import Event, MicroBatchesCut
from dragoman.model.transformer import Transformer
from dragoman.training.cluster import Cluster
from dragoman.training.feed import Feed, Share
from dragoman.training.precision import Precision

SEED_STRIDE = 1_000_003  # A prime: seeds of different steps and ranks do not meet.


class Gradients:
    """Adds up the gradients of shares in the model's parameters."""

    def __init__(
        self,
        model: Transformer,
        feed: Feed,
        precision: Precision,
        settings: Training,
        cluster: Cluster,
        record: Callable[[Event], None],
    ) -> None:
        self._model = model
        self._feed = feed
        self._precision = precision
        self._settings = settings
        self._cluster = cluster
        self._record = record

    def __call__(self, share: Share, step: int) -> tuple[Tensor, int]:
        """Sums of both losses over the share, and the number of pieces it took.

        A share that does not fit into memory is cut further and taken again. The others wait at the exchange, and
        nothing that they see changes.
        """
        limit = self._feed.micro_tokens
        pieces = share.pieces if share.micro_tokens <= limit else self._feed.cut(share.pairs, limit)
        while True:
            # A seed for every step and worker: dropout is the same again after a resume, whatever ran before.
            torch.manual_seed((self._settings.seed * SEED_STRIDE + step) * SEED_STRIDE + self._cluster.rank)
            try:
                sums = torch.zeros(2, device=self._cluster.device)
                for piece in pieces:
                    with self._precision.autocast():
                        loss, nll = self._model(piece.to(self._cluster.device), self._settings.label_smoothing)
                    (loss / share.target_tokens).backward()
                    sums += torch.stack([loss.detach(), nll])
                return sums, len(pieces)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or len(pieces) >= len(share.pairs):
                    raise
                reason = str(error).splitlines()[0]
            # Outside of the handler, so that the failed pass and its memory are gone.
            self._model.zero_grad()
            limit = self._feed.micro_tokens = max(1, limit // 2)
            pieces = self._feed.cut(share.pairs, limit)
            self._record(MicroBatchesCut(rank=self._cluster.rank, step=step, micro_batches=len(pieces), reason=reason))


def _is_out_of_memory(error: BaseException) -> bool:
    """CUDA has an exception of its own; the CPU's allocator says it in words."""
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)

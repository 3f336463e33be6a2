"""This worker's part of each step's gradient: its share of the batch, forwards and backwards through the model."""

from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.batching.data_loader import DataLoader, WorkerBatch
from dragoman.batching.packing import Batch
from dragoman.distributed.cluster import Cluster
from dragoman.events import Event, MicroBatchesSplit
from dragoman.model.cuda_graph import GraphedPass
from dragoman.model.dropout import seed_dropout
from dragoman.model.out_of_memory import is_out_of_memory
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.settings import TrainingSettings

SEED_STRIDE = 1_000_003  # A prime: seeds of different steps and ranks do not meet.


class Gradients:
    """Adds up the gradients of shares in the model's parameters.

    Where the feed gives pieces of few fixed sizes, the model runs compiled, and what it does is recorded and replayed.
    """

    def __init__(
        self,
        model: Transformer,
        feed: DataLoader,
        precision: Precision,
        settings: TrainingSettings,
        cluster: Cluster,
        record: Callable[[Event], None],
    ) -> None:
        self._model = model
        self._feed = feed
        self._precision = precision
        self._settings = settings
        self._cluster = cluster
        self._record = record
        self._sums = torch.zeros(2, device=cluster.device)
        self._target_tokens = torch.ones((), device=cluster.device)
        self._parameters = list(model.parameters())
        self._seeds: Tensor | None = None
        self._run: Callable[[Batch], None] = self._pass
        if feed.fixed_sizes:
            model.compile_for_training()
            self._seeds = seed_dropout(model, cluster.device)
            self._run = GraphedPass(self._pass, self._parameters, cluster.device)

    def __call__(self, share: WorkerBatch, step: int) -> tuple[Tensor, int]:
        """Sums of both losses over the share, and the number of pieces it took.

        A share that does not fit into memory is cut further and taken again. The others wait at the exchange, and
        nothing that they see changes.
        """
        limit = self._feed.micro_tokens
        pieces = share.pieces if share.micro_tokens <= limit else self._feed.cut(share.pairs, limit)
        self._target_tokens.fill_(share.target_tokens)
        while True:
            self._seed(step)
            self._sums.zero_()
            try:
                for number, piece in enumerate(pieces):
                    self._add(piece, first=number == 0)
                return self._sums.clone(), len(pieces)
            except RuntimeError as error:
                if not is_out_of_memory(error) or len(pieces) >= len(share.pairs):
                    raise
                reason = str(error).splitlines()[0]
            # Outside of the handler, so that the failed pass and its memory are gone.
            self._model.zero_grad()
            limit = self._feed.micro_tokens = max(1, limit // 2)
            pieces = self._feed.cut(share.pairs, limit)
            self._record(MicroBatchesSplit(step=step, micro_batches=len(pieces), reason=reason))

    def _add(self, piece: Batch, first: bool) -> None:
        """Add the gradients of a piece to those that there are; a recorded pass can only write them anew."""
        if self._seeds is not None:
            self._seeds.random_(-(2**31), 2**31)
        if first or self._seeds is None:
            self._run(piece)
            return
        totals = [gradient.clone() for gradient in self._gradients()]
        self._run(piece)
        torch._foreach_add_(totals, self._gradients())
        for parameter, total in zip(self._parameters, totals, strict=True):
            parameter.grad = total

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _seed(self, step: int) -> None:
        """A seed for every step and worker: dropout is the same again after a resume, whatever ran before."""
        seed = (self._settings.seed * SEED_STRIDE + step) * SEED_STRIDE + self._cluster.rank
        torch.manual_seed(seed % 2**63)  # It takes no more bits.

    def _pass(self, piece: Batch) -> None:
        with self._precision.autocast():
            loss, nll = self._model(piece.to(self._cluster.device, non_blocking=True), self._settings.label_smoothing)
        (loss / self._target_tokens).backward()
        self._sums += torch.stack([loss.detach(), nll])

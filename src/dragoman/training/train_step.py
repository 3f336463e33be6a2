"""Forward and backward: this worker's part of a step's gradient, micro-batch by micro-batch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.batching.data_loader import DataLoader, WorkerBatch
from dragoman.batching.packed_batch import Batch
from dragoman.events import Event, MicroBatchesSplit
from dragoman.model.cuda_graph import GraphedPass
from dragoman.model.dropout import draw_seeds, seed_dropout
from dragoman.model.out_of_memory import FittingSize, is_out_of_memory
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.settings import TrainingSettings
from dragoman.telemetry.compile_timer import time_compilation
from dragoman.telemetry.step_timing import StepTimer


@dataclass(frozen=True)
class WorkerGradients:
    """The result of one worker's forward and backward passes; the gradients themselves are in the parameters."""

    losses: Tensor
    """Sums of the loss with label smoothing and of the negative log-likelihood over the worker's tokens, [2]."""
    micro_batches: int


class TrainStep:
    """Accumulates the gradients of a worker's batch in the model's parameters.

    Where the loader pads micro-batches to fixed sizes, the model runs compiled, and its passes are CUDA graphs.
    """

    def __init__(
        self,
        model: Transformer,
        loader: DataLoader,
        precision: Precision,
        settings: TrainingSettings,
        device: torch.device,
        record: Callable[[Event], None],
        timer: StepTimer | None = None,
    ) -> None:
        self._model = model
        self._loader = loader
        self._precision = precision
        self._settings = settings
        self._device = device
        self._record = record
        self._losses = torch.zeros(2, device=device)
        self._batch_tokens = torch.ones((), device=device)
        self._parameters = model.trainable_parameters
        self._micro_batch_tokens = FittingSize(loader.micro_batch_tokens)
        self._dropout_seeds = seed_dropout(model, device)
        self._run: Callable[[Batch], None] = self._forward_backward
        if loader.fixed_sizes:
            model.compile_for_training()
            timer = timer or StepTimer()
            time_compilation(timer)
            self._run = GraphedPass(self._forward_backward, self._parameters, device, timer.compiling)

    @property
    def warm_up_passes(self) -> int:
        """Passes over batches of one size that are slower than the later ones."""
        return 2 if self._loader.fixed_sizes else 1  # A CUDA graph is captured in the second.

    def __call__(self, batch: WorkerBatch, step: int) -> WorkerGradients:
        """Run all micro-batches forward and backward.

        A batch that does not fit in memory is split further and run again. The other workers wait at the exchange, and
        nothing changes for them. Later batches are split in the same way for some steps: another program may have used
        the memory only for a while.
        """
        limit = self._loader.micro_batch_tokens = self._micro_batch_tokens.next()
        fits = batch.micro_batch_tokens <= limit
        micro_batches = batch.micro_batches if fits else self._loader.split(batch.pairs, batch.first_places, limit)
        self._batch_tokens.fill_(batch.target_tokens)
        draw_seeds(self._dropout_seeds, self._settings.seed, step)
        while True:
            self._losses.zero_()
            try:
                for number, micro_batch in enumerate(micro_batches):
                    self._add_gradients(micro_batch, first=number == 0)
                return WorkerGradients(self._losses.clone(), len(micro_batches))
            except RuntimeError as error:
                if not is_out_of_memory(error) or len(micro_batches) >= len(batch.pairs):
                    raise
                reason = str(error).partition("\n")[0]
            # Outside of the handler: there, the traceback would keep the failed pass and its memory alive.
            self._model.zero_grad()
            self._micro_batch_tokens.lower(max(1, limit // 2))
            limit = self._loader.micro_batch_tokens = self._micro_batch_tokens.size
            micro_batches = self._loader.split(batch.pairs, batch.first_places, limit)
            self._record(MicroBatchesSplit(step=step, micro_batches=len(micro_batches), reason=reason))

    def _add_gradients(self, micro_batch: Batch, *, first: bool) -> None:
        """Add a micro-batch's gradients to those of the previous ones. A CUDA graph can only overwrite them."""
        if first or not self._loader.fixed_sizes:
            self._run(micro_batch)
            return
        totals = [gradient.clone() for gradient in self._gradients()]
        self._run(micro_batch)
        torch._foreach_add_(totals, self._gradients())
        for parameter, total in zip(self._parameters, totals, strict=True):
            parameter.grad = total

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _forward_backward(self, micro_batch: Batch) -> None:
        with self._precision.autocast():
            loss, nll = self._model(micro_batch.to(self._device, non_blocking=True), self._settings.label_smoothing)
        (loss / self._batch_tokens).backward()
        self._losses += torch.stack([loss.detach(), nll])

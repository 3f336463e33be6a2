"""A replica: one worker's model, optimizer, moving average, exchange state and progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dragoman.batching.data_loader import WorkerBatch
from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import Exchange
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer
from dragoman.settings import Settings
from dragoman.step_model import PLAIN, ExchangeChoice
from dragoman.training.ema import EMA
from dragoman.training.optimizer import Optimizer
from dragoman.training.snapshot import Snapshot, TrainingState
from dragoman.training.start_model import StartWeights


@dataclass
class Replica:
    """One worker's training state. Equal on all workers whenever they are synchronised."""

    model: Transformer
    optimizer: Optimizer
    ema: EMA | None
    exchange: Exchange
    state: TrainingState = field(default_factory=TrainingState)
    step_complete: bool = True
    """True once all work due after the last step (evaluation, checkpoint) is done."""
    _has_trained: bool = False
    _uncounted_s: float = 0.0
    """Time before the first step of this process."""

    def snapshot(self) -> Snapshot:
        """A copy that training no longer touches."""
        trained = self.model.state_dict()
        optimizer = {**self.optimizer.state_dict(), **self.exchange.state_dict()}
        if self.ema is None:
            return Snapshot.take(self.state, trained, None, optimizer)
        return Snapshot.take(self.state, {**trained, **self.ema.weights}, trained, optimizer)

    def restore(self, snapshot: Snapshot, *, step_complete: bool = True) -> None:
        """Load a snapshot."""
        self.model.load_state_dict(dict(snapshot.trained or snapshot.weights))
        self.optimizer.load_state_dict(snapshot.optimizer)
        if self.ema is not None:
            for name, average in self.ema.weights.items():
                average.copy_(snapshot.weights[name])
        self.exchange.load_state_dict(snapshot.optimizer)
        self.state, self.step_complete, self._uncounted_s = snapshot.state, step_complete, 0.0

    @property
    def weights(self) -> list[Tensor]:
        """The weights as trained, and their moving average."""
        return [*self.model.parameters(), *(self.ema.weights.values() if self.ema is not None else ())]

    def gradient_norm(self) -> Tensor:
        """The global norm of the gradient, on the device."""
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def worker_gradient_norm_sq(self, batch: WorkerBatch) -> float:
        """Before the exchange: the squared norm of this worker's gradient, weighted by its share; 0 without one."""
        if batch.worker_target_tokens == 0:
            return 0.0
        # The gradient is divided by the tokens of the global batch, not by those of the share.
        return float(self.gradient_norm()) ** 2 * (batch.target_tokens / batch.worker_target_tokens)

    def apply_gradients(
        self, learning_rate: float, clip_norm: float, loss: Tensor, norm: Tensor, is_finite: bool | None
    ) -> None:
        """Update the weights, unless the step is not finite; None: only the device knows yet."""
        self._has_trained = True
        learning_rate *= self.exchange.learning_rate_factor
        if is_finite is None:
            self.optimizer.clip_and_step_if_finite(learning_rate, loss, norm, clip_norm)
        elif is_finite:
            self.optimizer.clip_and_step(learning_rate, float(norm), clip_norm)

    def synchronize(self, *, flush: bool, rollback: bool = False, last: bool = False) -> StepStats | None:
        """After an update: synchronise with the other workers, if it is time to. Completely if one requests it."""
        stats = self.exchange.synchronize(flush=flush, rollback=rollback, last=last)
        if stats is not None and stats.flush_requested and not self.exchange.in_sync:
            self.exchange.synchronize(flush=True)
        return stats

    def update_average(self) -> None:
        """After `synchronize`: update the moving average, if there is one."""
        if self.ema is not None:
            # Not the weights of a local step, which differ: the average is evaluated and saved on several workers.
            self.ema.update(self.state.step, self.exchange.common_weights)

    def add_elapsed(self, seconds: float) -> None:
        """Add training time. It counts once there is a step: repeating a finished run trains nothing."""
        self._uncounted_s += seconds
        if self._has_trained:
            self.state = replace(self.state, elapsed_s=self.state.elapsed_s + self._uncounted_s)
            self._uncounted_s = 0.0

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Evaluate with the moving average, if there is one, instead of the weights as trained."""
        if self.ema is not None:
            self.ema.swap()
        try:
            yield
        finally:
            if self.ema is not None:
                self.ema.swap()


def build_replica(
    settings: Settings, architecture: Architecture, cluster: Cluster, start: StartWeights | None = None
) -> Replica:
    """A replica with the given weights, or random ones, before the exchange method is chosen.

    Given weights are evaluated and saved before the first step, so that what is gained and lost can be measured.
    """
    torch.manual_seed(settings.training.seed)
    model = Transformer(architecture)
    if start is not None:
        start.move_into(model)
    model.freeze(settings.fine_tuning.freeze)
    model.to(cluster.device)
    decay = settings.optimizer.ema_decay
    plain = choose_exchange.build(ExchangeChoice(PLAIN), settings.exchange, cluster, model.trainable_parameters)
    ema = EMA(model, decay) if decay else None
    return Replica(model, Optimizer(model, settings.optimizer), ema, plain, step_complete=start is None)

"""All that a worker keeps of a run: the weights, their running average, the optimizer, and what an exchange owes."""

from dataclasses import dataclass

from dragoman.distributed.exchange import Exchange
from dragoman.model.transformer import Transformer
from dragoman.training.checkpoint import Snapshot, TrainingState, copy_tensors
from dragoman.training.optimizer import EMA, Optimizer


@dataclass
class Replica:
    """One worker's copy of the model in training, the same on all of them whenever they have met."""

    model: Transformer
    updater: Optimizer
    average: EMA | None
    exchange: Exchange

    def snapshot(self, state: TrainingState) -> Snapshot:
        """A copy on the CPU that training no longer touches."""
        trained = copy_tensors(self.model.state_dict())
        optimizer = copy_tensors({**self.updater.state(), **self.exchange.state()})
        if self.average is None:
            return Snapshot(state, trained, None, optimizer)
        return Snapshot(state, copy_tensors(self.average.weights), trained, optimizer)

    def restore(self, snapshot: Snapshot) -> None:
        """Take a snapshot's place."""
        self.model.load_state_dict(dict(snapshot.trained or snapshot.weights))
        self.updater.load_state(snapshot.optimizer)
        if self.average is not None:
            for name, tensor in snapshot.weights.items():
                self.average.weights[name].copy_(tensor)
        self.exchange.load_state(snapshot.optimizer)

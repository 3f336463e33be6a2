"""The training of a model: the same weights after the same steps, however many workers share them.

The batch comes from the plan, its tokens are known to everyone, and each worker's gradient is divided by them before
the sum. So the loss curve depends on the settings alone; workers, shares and interruptions change only the speed.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from dragoman import __version__
from dragoman.ahead import Ahead
from dragoman.config import Settings
from dragoman.corpus.dataset import DataSet
from dragoman.errors import DragomanError
from dragoman.events import (
    CheckpointsAveraged,
    Event,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    StepSkipped,
)
from dragoman.model.architecture import Architecture
from dragoman.model.store import Description, load_model
from dragoman.model.transformer import Transformer
from dragoman.rundir import RunDir
from dragoman.training import checkpoint
from dragoman.training.checkpoint import Checkpoints, Snapshot, TrainingState
from dragoman.training.cluster import Cluster
from dragoman.training.evaluate import Evaluator, Judge
from dragoman.training.exchange import PlainExchange
from dragoman.training.feed import Feed, Share
from dragoman.training.gradients import Gradients
from dragoman.training.optimizer import RunningAverage, Updater
from dragoman.training.precision import Precision, micro_tokens, replays
from dragoman.training.schedule import rate_at
from dragoman.training.stop import Stop

BATCHES_AHEAD = 3
MOST_ROLLBACKS = 3
ROLLBACK_FACTOR = 0.5
HIGHER_IS_BETTER = frozenset({"bleu", "chrf"})


class Trainer:
    """One worker's part in a run."""

    def __init__(
        self,
        settings: Settings,
        data: DataSet,
        run: RunDir,
        cluster: Cluster,
        judge: Judge,
        record: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._record = record
        architecture = Architecture(vocabulary=data.tokenizer.padded_size, **settings.model.model_dump())
        torch.manual_seed(settings.training.seed)
        self._model = Transformer(architecture).to(cluster.device)
        self._parameters = list(self._model.parameters())
        self._updater = Updater(self._model, settings.optimizer)
        decay = settings.optimizer.ema_decay
        self._average = RunningAverage(self._model, decay) if decay else None
        self._exchange = PlainExchange(cluster, self._parameters)
        self._precision = Precision.choose(settings, cluster.device)
        piece_tokens = micro_tokens(settings, architecture, cluster.device, cluster.local_world)
        self._feed = Feed(
            data.pairs("train"),
            data.tokenizer,
            settings.batch.tokens,
            settings.batch.seed,
            piece_tokens,
            fixed_sizes=replays(self._precision, architecture, cluster.device),
        )
        self._gradients = Gradients(self._model, self._feed, self._precision, settings.training, cluster, record)
        self._evaluator = Evaluator(settings, data, cluster, self._precision, judge, piece_tokens)
        description = Description(architecture, data.languages, settings.decoding, data.tokenizer)
        kept = settings.checkpoint
        keep_last = max(kept.keep_last, kept.average if kept.average_of == "last" else 0)
        keep_best = kept.average if kept.average_of == "best" else 0
        self._checkpoints = Checkpoints(run.checkpoints, description, keep_last, keep_best, record)
        self._run = run
        self._data = data
        self._state = TrainingState()
        self._skipped_in_a_row = 0

    def train(self, stop: Stop) -> str:
        """Go on from the newest whole checkpoint, or begin, until the end. Gives the reason why it ended."""
        started = time.perf_counter()
        self._resume()
        self._announce()
        elapsed_before_s = self._state.elapsed_s
        feed = self._open_feed()
        reason = "finished"
        try:
            while self._state.step < self._settings.training.steps:
                step_started = time.perf_counter()
                stop_wanted = self._step(next(feed), stop.requested, step_started)
                self._state = replace(self._state, elapsed_s=elapsed_before_s + time.perf_counter() - started)
                if self._skipped_in_a_row >= self._settings.training.skip_limit:
                    if self._state.rollbacks >= MOST_ROLLBACKS:
                        reason = "diverged"
                        break
                    feed.close()
                    self._roll_back()
                    feed = self._open_feed()
                    continue
                self._evaluate_and_save(stop_wanted)
                if stop_wanted or self._out_of_patience():
                    reason = "interrupted" if stop_wanted else "patience"
                    break
        finally:
            feed.close()
            self._checkpoints.wait()
        if reason in ("finished", "patience") and self._settings.checkpoint.average:
            self._save_average()
        self._record(
            RunEnded(rank=self._cluster.rank, step=self._state.step, reason=reason, elapsed_s=self._state.elapsed_s)
        )
        return reason

    def _open_feed(self) -> Ahead[Share]:
        shares = self._settings.training.shares or (1.0,) * self._cluster.world
        return Ahead(self._feed.shares(self._state.position, shares, self._cluster.rank), BATCHES_AHEAD)

    def _step(self, share: Share, stop_requested: bool, started: float) -> bool:
        """One update from one global batch. Says whether any worker was asked to stop."""
        step = self._state.step + 1
        sums, pieces = self._gradients(share, step)
        loss_sum, nll_sum, stops = self._exchange(torch.cat([sums, sums.new_tensor([stop_requested])])).tolist()
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None]))
        rate = self._rate(step)
        self._state = replace(self._state, step=step, position=share.next_position, loss=None)
        loss = loss_sum / share.target_tokens
        if math.isfinite(loss) and math.isfinite(norm):
            self._skipped_in_a_row = 0
            self._clip(norm)
            self._updater.step(rate)
            if self._average is not None:
                self._average.update(step)
            self._record(
                StepDone(
                    rank=self._cluster.rank,
                    step=step,
                    epoch=share.position.epoch,
                    batch=share.position.batch,
                    loss=loss,
                    nll=nll_sum / share.target_tokens,
                    gradient_norm=norm,
                    learning_rate=rate,
                    source_tokens=share.source_tokens,
                    target_tokens=share.target_tokens,
                    pairs=share.global_pairs,
                    step_s=time.perf_counter() - started,
                    micro_batches=pieces,
                )
            )
        else:
            self._skipped_in_a_row += 1
            self._record(
                StepSkipped(
                    rank=self._cluster.rank, step=step, loss=loss, gradient_norm=norm, in_a_row=self._skipped_in_a_row
                )
            )
        self._model.zero_grad()
        return bool(stops > 0)

    def _rate(self, step: int) -> float:
        settings = self._settings
        rate = rate_at(step, settings.schedule, settings.training.steps, settings.model.d_model)
        return rate * self._state.rate_factor

    def _clip(self, norm: float) -> None:
        limit = self._settings.optimizer.clip_norm
        if limit and norm > limit:
            torch._foreach_mul_([p.grad for p in self._parameters if p.grad is not None], limit / norm)

    def _evaluate_and_save(self, stopping: bool) -> None:
        """What is due after this step: an evaluation, a checkpoint, both or neither."""
        step, settings = self._state.step, self._settings
        last = step == settings.training.steps
        links: list[str] = []
        evaluating = last or (step % settings.evaluation.every == 0 and not stopping)
        if evaluating:
            links = self._evaluate()
        due = evaluating or stopping or step % settings.checkpoint.every == 0
        if due and self._cluster.is_first:
            self._checkpoints.save(self._snapshot, links)

    def _evaluate(self) -> list[str]:
        """Judge the model, and say which checkpoints this step becomes the best of."""
        if self._average is not None:
            self._average.swap()
        done = self._evaluator.evaluate(self._model, self._state.step)
        if self._average is not None:
            self._average.swap()
        self._record(done)
        values = {"loss": done.nll, "bleu": done.bleu, "chrf": done.chrf}
        better = [name for name, value in values.items() if value is not None and self._is_best(name, value)]
        best = {**self._state.best, **{name: value for name in better if (value := values[name]) is not None}}
        patient = self._settings.evaluation.patience_metric in better
        self._state = replace(
            self._state, best=best, loss=done.nll, stale_evaluations=0 if patient else self._state.stale_evaluations + 1
        )
        return [link for name, link in _LINKS.items() if name in better]

    def _is_best(self, metric: str, value: float) -> bool:
        known = self._state.best.get(metric)
        if known is None:
            return True
        return value > known if metric in HIGHER_IS_BETTER else value < known

    def _out_of_patience(self) -> bool:
        patience = self._settings.evaluation.patience
        return bool(patience) and self._state.stale_evaluations >= patience

    def _snapshot(self) -> Snapshot:
        trained = checkpoint.copy_tensors(self._model.state_dict())
        optimizer = checkpoint.copy_tensors(self._updater.state())
        if self._average is None:
            return Snapshot(self._state, trained, None, optimizer)
        return Snapshot(self._state, checkpoint.copy_tensors(self._average.weights), trained, optimizer)

    def _resume(self) -> None:
        """Take up the newest whole checkpoint. The first worker looks for it; all of them load the same one."""
        if name := self._newest_checkpoint():
            self._load(self._run.checkpoints / name)

    def _newest_checkpoint(self) -> str | None:
        found = self._checkpoints.newest_whole() if self._cluster.is_first else None
        return self._cluster.share(found.name if found is not None else None)

    def _load(self, folder: Path) -> None:
        snapshot = checkpoint.load(folder)
        self._model.load_state_dict(dict(snapshot.trained or snapshot.weights))
        self._updater.load_state(snapshot.optimizer)
        if self._average is not None:
            for name, tensor in snapshot.weights.items():
                self._average.weights[name].copy_(tensor)
        self._state = snapshot.state

    def _roll_back(self) -> None:
        """Return to the last good checkpoint with a lower rate; where there is none, say what to change."""
        from_step = self._state.step
        factor, rollbacks = self._state.rate_factor * ROLLBACK_FACTOR, self._state.rollbacks + 1
        self._checkpoints.wait()
        name = self._newest_checkpoint()
        if name is None:
            raise DragomanError(
                f"The loss was not finite for {self._skipped_in_a_row} steps in a row, before the first checkpoint: "
                "lower schedule.rate, lengthen schedule.warmup_steps, or set optimizer.clip_norm."
            )
        self._load(self._run.checkpoints / name)
        self._state = replace(self._state, rate_factor=factor, rollbacks=rollbacks)
        self._skipped_in_a_row = 0
        self._record(
            RolledBack(rank=self._cluster.rank, from_step=from_step, to_step=self._state.step, rate_factor=factor)
        )

    def _save_average(self) -> None:
        """Average the weights of the newest or the best checkpoints, and judge the result."""
        kept, folder = self._settings.checkpoint, self._run.checkpoints
        names: list[str] = []
        if self._cluster.is_first:
            names = checkpoint.names(folder) if kept.average_of == "last" else checkpoint.best(folder, kept.average)
            names = names[: kept.average]
            self._checkpoints.write_average(self._state.step, names)
        names = self._cluster.share(names)
        model = load_model(folder / checkpoint.AVERAGED, self._cluster.device).model
        done = self._evaluator.evaluate(model, self._state.step)
        self._record(
            CheckpointsAveraged(
                rank=self._cluster.rank,
                step=self._state.step,
                names=names,
                nll=done.nll,
                bleu=done.bleu,
                chrf=done.chrf,
            )
        )

    def _announce(self) -> None:
        cluster = self._cluster
        self._record(
            RunStarted(
                rank=cluster.rank,
                run=self._run.path.name,
                version=__version__,
                torch_version=torch.__version__,
                world=cluster.world,
                device=_device_name(cluster.device),
                host=cluster.host,
                parameters=sum(parameter.numel() for parameter in self._parameters),
                precision=self._precision.name,
                data=self._data.manifest.identity,
                resumed_step=self._state.step,
                total_steps=self._settings.training.steps,
                settings=self._settings.model_dump(mode="json"),
            )
        )


_LINKS = {"loss": checkpoint.BEST_LOSS, "bleu": checkpoint.BEST_BLEU}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"

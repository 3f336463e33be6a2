"""The training of a model: the same weights after the same steps, however many workers share them.

The batch comes from the plan, its tokens are known to everyone, and each worker's gradient is divided by them before
the sum. So the loss curve depends on the settings alone; workers, shares and interruptions change only the speed.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dragoman.batching.data_loader import DataLoader, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.distributed import choose_exchange
from dragoman.distributed.balance import Balance
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.exchange import POSTS, SPREAD, STOPS, TIMES, TOKENS
from dragoman.distributed.process_group import Member, WorkersLostError
from dragoman.distributed.shared_storage import choose_checkpoint_writers, find_shared_storage
from dragoman.distributed.state_sync import ReplicaProgress, compare, hand_over
from dragoman.errors import DragomanError
from dragoman.events import (
    CollectiveStalled,
    Event,
    ExchangeChosen,
    RolledBack,
    RunEnded,
    SharesChanged,
    WorkersLost,
    WorldChanged,
)
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription
from dragoman.model.precision import Precision, micro_tokens, replays
from dragoman.model.transformer import Transformer
from dragoman.prefetch import Prefetcher
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.compile_timer import CompileTimer
from dragoman.telemetry.device_timer import DeviceTimer
from dragoman.telemetry.step_timing import Part, StepTimer
from dragoman.training import checkpoint
from dragoman.training.async_scalars import AsyncScalars
from dragoman.training.checkpoint import Checkpoints, Snapshot, TrainingState
from dragoman.training.checkpoint_averaging import save_average
from dragoman.training.early_stopping import take_in
from dragoman.training.evaluation import Evaluator, TranslationJudge
from dragoman.training.optimizer import EMA, Optimizer
from dragoman.training.replica import Replica
from dragoman.training.schedule import rate_at
from dragoman.training.start_events import describe_data, describe_start
from dragoman.training.step_log import StepLog, StepRecord
from dragoman.training.stop_signal import StopSignal
from dragoman.training.train_step import Gradients

BATCHES_AHEAD = 8
MOST_ROLLBACKS = 3
ROLLBACK_FACTOR = 0.5
SPREAD_EVERY = 8
"""Steps between measurements of how much the workers' gradients differ."""


class Trainer:
    """One worker's part in a run."""

    def __init__(
        self,
        settings: Settings,
        data: DataSet,
        run: RunFolder,
        cluster: Cluster,
        judge: TranslationJudge,
        record: Callable[[Event], None],
        post: EventSync,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._record = record
        self._post = post
        architecture = Architecture(vocabulary=data.tokenizer.padded_size, **settings.model.model_dump())
        torch.manual_seed(settings.training.seed)
        model = Transformer(architecture).to(cluster.device)
        self._parameters = list(model.parameters())
        decay = settings.optimizer.ema_decay
        self._choice = choose_exchange.Choice("plain")
        self._replica = Replica(
            model,
            Optimizer(model, settings.optimizer),
            EMA(model, decay) if decay else None,
            choose_exchange.build(self._choice, settings.exchange, cluster, self._parameters),
        )
        self._precision = Precision.choose(settings, cluster.device)
        piece_tokens = micro_tokens(settings, architecture, cluster.device, cluster.local_world)
        self._feed = DataLoader(
            data.pairs("train"),
            data.tokenizer,
            settings.batch.tokens,
            settings.batch.seed,
            piece_tokens,
            fixed_sizes=replays(self._precision, architecture, cluster.device),
        )
        self._gradients = Gradients(model, self._feed, self._precision, settings.training, cluster, record)
        self._evaluator = Evaluator(settings, data, cluster, self._precision, judge, piece_tokens)
        description = ModelDescription(architecture, data.languages, settings.decoding, data.tokenizer)
        kept = settings.checkpoint
        keep_last = max(kept.keep_last, kept.average if kept.average_of == "last" else 0)
        keep_best = kept.average if kept.average_of == "best" else 0
        self._checkpoints = Checkpoints(run.checkpoints, description, keep_last, keep_best, record)
        self._run = run
        self._data = data
        self._compute = DeviceTimer(cluster.device)
        self._state = TrainingState()
        self._history = ""
        self._settled = True
        """Whether all that was due after the last step is done."""
        self._fallback: Snapshot | None = None
        """Where an elastic world whose workers update by themselves returns to when it loses one."""
        self._ledger = StepLog(cluster, self._tick, record)
        self._shares: Prefetcher[WorkerBatch] | None = None
        self._balance = Balance([1.0])
        self._disks: list[int] = [0]
        self._keepers: frozenset[int] = frozenset()
        self._look_every = 0
        """Steps between looks at the exchange; 0 is never."""
        self._anatomy = StepTimer()
        self._compiling = CompileTimer()
        self._ready_s: list[float] = []
        """How long each worker took until it was ready for the last exchange, by rank."""
        self._announced = False
        self._sent_told = 0
        cluster.on_hang = self._tell_of_waiting

    def train(self, stop: StopSignal) -> str:
        """Go on from the newest whole checkpoint, or begin, until the end. Gives the reason why it ended."""
        self._resume()
        reason = None
        try:
            while reason is None:
                try:
                    reason = self._advance(stop)
                except WorkersLostError as lost:
                    self._lose(lost)
        finally:
            self._close_feed()
            self._checkpoints.wait()
        with contextlib.suppress(WorkersLostError):
            self._post.exchange(self._cluster, self._disks)
        self._tick()
        self._record(RunEnded(step=self._state.step, reason=reason, elapsed_s=self._state.elapsed_s))
        if self._checkpoints.failure:
            raise DragomanError(
                f"The end of the run could not be saved ({self._checkpoints.failure}): make room in {self._run.path}, "
                "and give the same command again; it goes on from the newest checkpoint."
            )
        return reason

    def _advance(self, stop: StopSignal) -> str | None:
        """One step and what is due after it. Gives the reason to end, if there is one."""
        self._anatomy.enter("exchange")
        # Weights that differ between meetings cannot be handed to a newcomer: he waits for the next one.
        changed = self._replica.exchange.common and self._cluster.renew()
        if changed or self._shares is None:
            self._meet()
        if self._settled:
            if self._state.step >= self._settings.training.steps:
                return self._finish("finished")
            assert self._shares is not None
            self._anatomy.enter("data")
            self._step(next(self._shares), stop.requested)
            if self._ledger.skipped_in_a_row >= self._settings.training.max_skipped_steps:
                return self._roll_back()
        if self._settle():
            return "interrupted"
        return self._finish("patience") if self._out_of_patience() else None

    def _step(self, share: WorkerBatch, stop_requested: bool) -> None:
        """One update from one global batch."""
        cluster, step = self._cluster, self._state.step + 1
        cluster.pulse.doing = f"step {step}, computing"
        self._anatomy.enter("compute")
        self._compute.start()
        sums, pieces = self._gradients(share, step)
        self._compute.stop()
        compute_s = self._compute.seconds
        cluster.pulse.doing = f"step {step}, waiting"
        exchange, times = self._replica.exchange, (compute_s, self._anatomy.ready_s(compute_s))
        mine = self._words(sums, share, stop_requested, times, self._spread(share, step))
        self._anatomy.enter("exchange")
        words = exchange.gradients(mine, share.target_tokens)
        self._anatomy.enter("update")
        if exchange.common:
            self._ready_s = words[TIMES + cluster.world :].tolist()
        losses = sums if cluster.world == 1 else words[:TOKENS]
        norm = torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        rate = self._rate(step)
        self._state = replace(self._state, step=step, position=share.next_position, loss=None)
        self._settled = False
        taken = StepRecord(
            share=share,
            step=step,
            tokens=share.my_target_tokens if cluster.world == 1 else int(words[TOKENS]),
            rate=rate,
            compute_s=compute_s,
            compile_s=self._compiling.take(),
            ready_s=self._ready_s,
            sent_bytes=cluster.bytes_sent - self._sent_told,
            spread=float(words[SPREAD]) if self._measures_spread(step) else 0.0,
            pieces=pieces,
            reading=AsyncScalars(torch.cat([losses, norm.reshape(1)])),
        )
        self._sent_told, self._ready_s = cluster.bytes_sent, []
        updater, average = self._replica.updater, self._replica.average
        own_rate = rate * exchange.rate_factor
        if self._reads_later:
            updater.step_unread(own_rate, losses[0], norm, self._settings.optimizer.clip_norm)
        elif taken.is_finite:
            self._clip(float(norm))
            updater.step(own_rate)
        if average is not None and (self._reads_later or taken.is_finite):
            average.update(step)
        self._ledger.add(taken, wait=not self._reads_later)
        self._replica.model.zero_grad()

    @property
    def _reads_later(self) -> bool:
        """Whether numbers may arrive late. Not where others' decide what all do next."""
        return self._cluster.device.type == "cuda" and self._cluster.world == 1

    def _words(
        self, sums: Tensor, share: WorkerBatch, stop_requested: bool, times: tuple[float, float], spread: float
    ) -> Tensor:
        """What travels beside the gradient: losses, tokens, wishes, and each worker's times at its places."""
        world, rank, tokens = self._cluster.world, self._cluster.rank, share.my_target_tokens
        if world == 1:
            # No one else's sums are to be added, and a GPU that is not asked need not be waited for.
            return torch.tensor([0.0, 0.0, tokens, stop_requested, 0.0, spread, *times])
        places = [0.0] * (2 * world)
        places[rank], places[world + rank] = times
        return torch.cat([sums, sums.new_tensor([tokens, stop_requested, self._post.due, spread, *places])])

    def _measures_spread(self, step: int) -> bool:
        return self._cluster.world > 1 and self._choice.method != "local" and step % SPREAD_EVERY == 0

    def _spread(self, share: WorkerBatch, step: int) -> float:
        """This worker's part of the mean square norm of all workers' gradients, where it is to be measured."""
        if not self._measures_spread(step) or not share.my_target_tokens:
            return 0.0
        norm = torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        # The gradient is already divided by the tokens of the whole batch, not by those of the share.
        return float(norm) ** 2 * share.target_tokens / share.my_target_tokens

    def _tick(self) -> dict[Part, float]:
        """Seconds since the last tick by part, all of which count as the run's time."""
        spent_s = self._anatomy.take()
        self._state = replace(self._state, elapsed_s=self._state.elapsed_s + sum(spent_s.values()))
        return spent_s

    def _rate(self, step: int) -> float:
        settings = self._settings
        rate = rate_at(step, settings.schedule, settings.training.steps, settings.model.d_model)
        return rate * self._state.learning_rate_factor

    def _clip(self, norm: float) -> None:
        limit = self._settings.optimizer.clip_norm
        if limit and norm > limit:
            torch._foreach_mul_([p.grad for p in self._parameters if p.grad is not None], limit / norm)

    def _settle(self) -> bool:
        """What is due after a step: an evaluation, a checkpoint, both or neither. True: someone wants to stop."""
        step, settings = self._state.step, self._settings
        last = step == settings.training.steps
        looking = self._look_every > 0 and step % self._look_every == 0
        evaluating = last or step % settings.evaluation.every == 0
        saving = evaluating or step % settings.checkpoint.every == 0
        self._anatomy.enter("exchange")
        words = self._replica.exchange.settle(flush=evaluating or saving or looking)
        stopping = words is not None and bool(words[STOPS] > 0)
        if evaluating or saving or stopping:
            self._ledger.tell_all()
        self._anatomy.enter("apart")
        if stopping and not saving:
            self._replica.exchange.settle(flush=True)
        links: list[str] = []
        if evaluating and (last or not stopping):
            links = self._evaluate()
        if (saving or stopping) and self._cluster.rank in self._keepers:
            self._checkpoints.save(lambda: self._replica.snapshot(self._state), links)
        self._settled = True
        if words is not None:
            times = words[TIMES:].tolist()
            compute_s, self._ready_s = times[: self._cluster.world], times[self._cluster.world :]
            self._follow(compute_s, self._ready_s)
            self._note_meeting()
            # In between, letters would have to wait for weights that are on their way.
            if self._replica.exchange.common and bool(words[POSTS] > 0):
                self._post.exchange(self._cluster, self._disks)
        if looking:
            self._choose_exchange()
        return stopping

    def _note_meeting(self) -> None:
        """Remember where all workers were together, if they are now to go on by themselves and might get lost."""
        if self._choice.method == "local" and self._cluster.elastic:
            self._fallback = self._replica.snapshot(self._state)

    def _follow(self, compute_s: Sequence[float], ready_s: Sequence[float]) -> None:
        """Let the shares follow the workers' speeds."""
        rest_s = [max(0.0, ready - compute) for ready, compute in zip(ready_s, compute_s, strict=True)]
        if self._balance.follow(compute_s, rest_s):
            self._record(SharesChanged(step=self._state.step, shares=list(self._balance.shares)))
            self._open_feed()

    def _evaluate(self) -> list[str]:
        """Judge the model, and say which checkpoints this step becomes the best of."""
        average = self._replica.average
        self._cluster.pulse.doing = f"step {self._state.step}, evaluating"
        if average is not None:
            average.swap()
        try:
            done = self._evaluator.evaluate(self._replica.model, self._state.step)
        finally:
            if average is not None:
                average.swap()
        self._record(done)
        self._state, links = take_in(self._state, done, self._settings.evaluation.patience_metric)
        return links

    def _out_of_patience(self) -> bool:
        patience = self._settings.evaluation.patience
        return bool(patience) and self._state.stale_evaluations >= patience

    def _resume(self) -> bool:
        """Take up the newest whole checkpoint of this machine, if it has one. Others may have a newer one."""
        found = self._checkpoints.newest_whole()
        if found is None:
            return False
        snapshot = checkpoint.load(found)
        self._replica.restore(snapshot)
        self._state = snapshot.state
        self._history = checkpoint.identity(found)
        return True

    def _meet(self) -> None:
        """In a new world: bring all workers to the same state, and agree on who does what."""
        self._ledger.tell_all()
        self._anatomy.enter("apart")
        cluster, shares = self._cluster, self._settings.training.shares
        self._catch_up(ReplicaProgress(self._state.step, self._settled, self._history))
        self._disks = find_shared_storage(cluster, self._run.checkpoints)
        self._keepers = choose_checkpoint_writers(self._disks, cluster.members)
        if cluster.rank in self._keepers:
            self._checkpoints.own()
        set_shares = None if isinstance(shares, str) else [shares[member.worker] for member in cluster.members]
        self._balance = Balance(set_shares or [1.0] * cluster.world, follows=shares == "auto" and cluster.machines > 1)
        self._open_feed()
        self._choose_exchange(self._choice.link)
        self._announce()
        self._note_meeting()
        self._tick()

    def _catch_up(self, mine: ReplicaProgress) -> bool:
        """Give everyone the state of the worker that has come furthest, where anyone's differs. False: none has any."""
        furthest, known, self._history = compare(self._cluster, mine)
        if known[furthest].step < 0:
            return False
        if any(progress != known[furthest] for progress in known):
            giving = self._cluster.rank == furthest
            snapshot = hand_over(self._cluster, furthest, self._replica.snapshot(self._state) if giving else None)
            if not giving:
                self._replica.restore(snapshot)
                self._state, self._settled = snapshot.state, known[furthest].settled
                self._ledger.skipped_in_a_row = 0
        return True

    def _choose_exchange(self, known: choose_exchange.MeasuredLink | None = None) -> None:
        """Settle on a method for this world, and say so when it is another than before."""
        settings, cluster = self._settings.exchange, self._cluster
        choice = choose_exchange.decide(
            settings, cluster, self._parameters, self._compute.seconds, self._rehearse, known
        )
        self._look_every = choice.look_every
        owed = self._replica.exchange.state()
        self._replica.exchange = choose_exchange.build(choice, settings, cluster, self._parameters)
        self._replica.exchange.load_state(owed)
        if choice.dials != self._choice.dials and cluster.world > 1:
            self._record(
                ExchangeChosen(
                    step=self._state.step,
                    method=choice.method,
                    every=choice.every,
                    wire_format=choice.wire,
                    reason=choice.reason,
                )
            )
        self._choice = choice

    def _rehearse(self) -> float:
        """Compute the next step without taking it, twice: the first time everything is cold. Gives its seconds."""
        assert self._shares is not None
        share = next(self._shares)
        for _ in range(2):
            self._compute.start()
            self._gradients(share, self._state.step + 1)
            self._compute.stop()
            self._replica.model.zero_grad()
        if self._cluster.device.type == "cuda":
            torch.cuda.synchronize()
        self._open_feed()
        return self._compute.seconds

    def _open_feed(self) -> None:
        """Make shares ahead from the present position on, with the present shares."""
        self._close_feed()
        shares = self._feed.shares(self._state.position, self._balance.shares, self._cluster.rank)
        self._shares = Prefetcher(shares, BATCHES_AHEAD)

    def _close_feed(self) -> None:
        if self._shares is not None:
            self._shares.close()
            self._shares = None

    def _lose(self, lost: WorkersLostError) -> None:
        """Someone is gone. In an elastic world the others go on; a static one has to be started again."""
        cluster = self._cluster
        self._record(
            WorkersLost(
                step=self._state.step,
                workers=[_describe(member, words) for member, words in lost.missing],
                reason=lost.reason,
            )
        )
        if not cluster.elastic:
            raise lost
        cluster.lose()
        self._replica.model.zero_grad()
        self._close_feed()
        if self._fallback is not None:
            self._replica.restore(self._fallback)
            self._state, self._settled = self._fallback.state, True

    def _roll_back(self) -> str | None:
        """Return to the last good checkpoint with a lower rate. Gives the reason to end where that has not helped."""
        self._ledger.tell_all()
        if self._state.rollbacks >= MOST_ROLLBACKS:
            return "diverged"
        from_step = self._state.step
        factor, rollbacks = self._state.learning_rate_factor * ROLLBACK_FACTOR, self._state.rollbacks + 1
        self._checkpoints.wait()
        found = self._resume()
        if not self._catch_up(ReplicaProgress(self._state.step if found else -1, True, self._history if found else "")):
            skipped = self._ledger.skipped_in_a_row
            raise DragomanError(
                f"The loss was not finite for {skipped} steps in a row, before the first checkpoint: "
                "lower schedule.learning_rate, lengthen schedule.warmup_steps, or set optimizer.clip_norm."
            )
        self._state = replace(self._state, learning_rate_factor=factor, rollbacks=rollbacks)
        self._settled, self._ledger.skipped_in_a_row = True, 0
        self._open_feed()
        self._record(RolledBack(from_step=from_step, to_step=self._state.step, learning_rate_factor=factor))
        return None

    def _finish(self, reason: str) -> str:
        """Average checkpoints, if so set, before the run ends for this reason."""
        if self._settings.checkpoint.average:
            self._checkpoints.wait()
            averaged = save_average(
                self._settings.checkpoint, self._run.checkpoints, self._checkpoints, self._replica.model.architecture,
                self._cluster, self._evaluator, self._state.step,
            )  # fmt: skip
            if averaged is not None:
                self._record(averaged)
        return reason

    def _announce(self) -> None:
        """Tell of the start, and later of every change of the world."""
        cluster = self._cluster
        workers = [_describe(member) for member in cluster.members]
        if self._announced:
            self._record(WorldChanged(step=self._state.step, workers=workers))
            return
        self._announced = True
        model, manifest = self._replica.model, self._data.manifest
        self._record(
            describe_start(
                self._run, cluster, workers, model, self._precision, manifest, self._state.step, self._settings
            )
        )
        self._record(describe_data(manifest))

    def _tell_of_waiting(self, waited_for: Sequence[tuple[Member, str]]) -> None:
        self._record(
            CollectiveStalled(
                step=self._state.step,
                workers=[_describe(member, words) for member, words in waited_for],
            )
        )


def _describe(member: Member, words: str = "") -> str:
    return f"{member} ({words})" if words else str(member)

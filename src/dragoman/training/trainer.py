"""The training loop: the same weights after the same steps, however many workers share them.

The batch comes from the plan, its token count is known to every worker, and each worker's gradient is divided by it
before the sum. So the loss curve depends on the settings alone; workers, shares and interruptions only change the
speed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.batching.data_loader import BatchStream, DataLoader, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import EvaluationSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.process_group import WorkersLostError
from dragoman.distributed.replica_drift import find_drift
from dragoman.distributed.step_stats import StepStats, at_rank
from dragoman.events import Event, RunEnded, WorldChanged
from dragoman.model.architecture import Architecture
from dragoman.model.cuda_graph import uses_cuda_graphs
from dragoman.model.memory_budget import choose_micro_batch_tokens, peak_memory_bytes
from dragoman.model.model_folder import ModelDescription
from dragoman.model.precision import Precision
from dragoman.run_folder import RunFolder
from dragoman.schedule import learning_rate_at
from dragoman.settings import Settings
from dragoman.telemetry.device_timeline import timeline_of
from dragoman.telemetry.step_timing import StepSpans, StepTimer
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.checkpoint_averaging import save_average
from dragoman.training.early_stopping import patience_exhausted, reason_to_end, update_best
from dragoman.training.evaluation import Evaluator, TranslationScorer
from dragoman.training.fingerprint import Fingerprint
from dragoman.training.membership import Membership
from dragoman.training.replica import build_replica
from dragoman.training.start_events import start_events
from dragoman.training.start_model import StartWeights
from dragoman.training.step_log import StepLog
from dragoman.training.stop_signal import StopSignal
from dragoman.training.train_step import TrainStep, WorkerGradients

NORM_EVERY = 8
"""Steps between measurements of the workers' own gradient norms, which show the gradient noise."""


class Trainer:
    """One worker's part in a run."""

    def __init__(
        self,
        settings: Settings,
        data: DataSet,
        run: RunFolder,
        cluster: Cluster,
        scorer: TranslationScorer,
        record: Callable[[Event], None],
        event_sync: EventSync,
        start: StartWeights | None = None,
        other_sets: Sequence[EvaluationSet] = (),
    ) -> None:
        self._settings, self._data, self._start, self._run, self._cluster = settings, data, start, run, cluster
        self._architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
        device, precision = cluster.device, Precision.choose(settings, cluster.device)
        timer = StepTimer(timeline=timeline_of(device), communication_s=lambda: cluster.communication_s)
        self._record, self._event_sync, self._timer, self._precision = record, event_sync, timer, precision
        replica = self._replica = build_replica(settings, self._architecture, cluster, start)
        micro_batch_tokens = choose_micro_batch_tokens(settings, self._architecture, device, cluster.local_world_size)
        fixed_sizes = uses_cuda_graphs(precision, self._architecture, device)
        loader = _make_loader(settings, data, micro_batch_tokens, fixed_sizes=fixed_sizes)
        self._batches, self._lengths = BatchStream(loader), loader.first_epoch_lengths()
        self._train_step = TrainStep(replica.model, loader, precision, settings.training, device, record, timer)
        self._evaluator = Evaluator(settings, data, run, cluster, precision, scorer, micro_batch_tokens, other_sets)
        description = ModelDescription(self._architecture, data.languages, settings.decoding, data.tokenizer)
        self._checkpoints = Checkpoints(run.checkpoints, description, settings.checkpoint, record)
        self._step_log = StepLog(cluster, self._take_spans, record)
        self._membership = Membership(
            settings, Fingerprint.of(settings, data, start, other_sets), cluster, replica, self._train_step,
            self._batches, self._checkpoints, self._step_log, timer, record, take_step=self._take_step,
            on_new_world=self._announce_world,
        )  # fmt: skip
        self._stop = StopSignal()

    def train(self, stop: StopSignal) -> str:
        """Train from the newest valid checkpoint, or from scratch, to the end. Returns the reason why the run ended."""
        self._stop = stop
        self._membership.resume()
        reason = None
        try:
            while reason is None:
                try:
                    reason = self._advance()
                except WorkersLostError as lost:
                    self._membership.recover(lost)
                except Exception as error:
                    self._membership.report_failure(error)
                    raise
        finally:
            self._batches.close()
            self._checkpoints.wait()
        self._end(reason)
        return reason

    def _advance(self) -> str | None:
        """One step and the work due after it. Returns the reason to end, if there is one."""
        replica = self._replica
        self._membership.sync()  # The workers of this step, with equal weights, and their shares of the batch.
        stats = None
        if replica.step_complete:  # Otherwise workers were lost after a step, and only the work due after it is left.
            if (reason := reason_to_end(replica.state, self._settings)) is not None:
                return self._finish(reason)
            self._take_step()
            self._timer.enter("exchange")
            due = self._membership.due_work()
            too_many_skips = self._step_log.consecutive_skips >= self._settings.training.max_skipped_steps
            stats = replica.synchronize(flush=due.needs_equal_weights, rollback=too_many_skips, last=due.last)
            self._timer.enter("update")
            replica.update_average()
            if stats is not None and stats.rollback_requested:  # By any worker: all roll back together.
                return None if self._membership.roll_back() else "diverged"
        return self._complete_step(stats)

    def _take_step(self) -> None:
        """Compute the next batch, and update the weights."""
        timer, heartbeat, step = self._timer, self._cluster.heartbeat, self._replica.state.step + 1
        timer.enter("data")
        batch = next(self._batches)
        timer.enter("compute")
        heartbeat.activity = f"step {step}, computing"
        gradients = self._train_step(batch, step)  # Forward, backward, micro-batches.
        timer.enter("exchange")
        stats = self._collect_stats(batch, gradients, step)
        heartbeat.activity = f"step {step}, waiting"
        stats = self._replica.exchange.all_reduce(stats, batch.target_tokens)  # Gradients cross machines only here.
        timer.enter("update")
        self._update(batch, gradients, stats, step)

    def _collect_stats(self, batch: WorkerBatch, gradients: WorkerGradients, step: int) -> StepStats:
        """This worker's statistics of a step, which are sent together with its gradient."""
        rank, world_size = self._cluster.rank, self._cluster.world_size
        measures_norm = self._membership.averages_gradients and step % NORM_EVERY == 0
        return StepStats(
            losses=gradients.losses,
            target_tokens=batch.worker_target_tokens,
            compute_s=at_rank(self._timer.compute_s, rank, world_size),
            ready_s=at_rank(self._timer.ready_s, rank, world_size),
            stop_requests=self._stop.requested,
            event_sync_requests=world_size > 1 and self._event_sync.due,
            join_requests=not self._replica.exchange.in_sync and self._cluster.has_newcomers,
            worker_gradient_norm_sq=self._replica.worker_gradient_norm_sq(batch) if measures_norm else 0.0,
        )

    def _update(self, batch: WorkerBatch, gradients: WorkerGradients, stats: StepStats, step: int) -> None:
        """Update the weights, unless the loss or the gradient is not finite, and log the step."""
        replica, settings, norm = self._replica, self._settings, self._replica.gradient_norm()
        learning_rate = learning_rate_at(step, settings.schedule, settings.training.steps, settings.model.d_model)
        learning_rate *= replica.state.learning_rate_factor
        record = self._step_log.make_record(
            batch, gradients, stats, step, learning_rate, norm, synchronous=replica.exchange.in_sync
        )
        replica.state = replace(replica.state, step=step, position=batch.next_position, loss=None)
        replica.step_complete = False
        # A GPU must not wait for Python to read the loss. Workers with one gradient must, to take the same branch.
        reads_late = self._cluster.device.type == "cuda" and not self._membership.averages_gradients
        is_finite = None if reads_late else record.is_finite()
        replica.apply_gradients(learning_rate, settings.optimizer.clip_norm, stats.losses[0], norm, is_finite)
        self._timer.enter("host")
        self._step_log.add(record, wait=not reads_late)
        replica.model.zero_grad()

    def _complete_step(self, stats: StepStats | None) -> str | None:
        """The work due after a step, with the stats of all workers, if any. Returns the reason to end, or None."""
        replica, due = self._replica, self._membership.due_work()
        stops = stats is not None and stats.stop_requested
        if due.checkpoint or stops:
            self._step_log.flush()
        # A single worker with nothing to do goes on at once: the time in between is part of its steps.
        self._timer.enter("outside" if due.checkpoint or stops or self._cluster.world_size > 1 else "host")
        if due.checkpoint and (drifted := find_drift(self._cluster, replica.weights, replica.state.step)):
            self._record(drifted)
        links = self._evaluate() if due.evaluation and (due.last or not stops) else []
        if (due.checkpoint or stops) and self._membership.writes_checkpoints:
            self._checkpoints.save(replica.snapshot, links)
        replica.step_complete = True
        if stats is not None:
            self._on_synchronized(stats)
        if due.exchange_review:
            self._membership.review_exchange()
        if stops:
            return "interrupted"
        return self._finish("patience") if patience_exhausted(replica.state, self._settings.evaluation) else None

    def _on_synchronized(self, stats: StepStats) -> None:
        """Use the stats of all workers: step times, shares of the batch, and the next event sync."""
        self._step_log.note_sync(stats)
        self._membership.rebalance(stats)
        # A pending all-reduce of weights would delay the event messages.
        if self._replica.exchange.in_sync and stats.event_sync_requested:
            self._event_sync.sync(self._cluster, self._membership.storage)

    def _evaluate(self) -> list[str]:
        """Evaluate the model. Returns the links that move to this step's checkpoint."""
        replica = self._replica
        self._cluster.heartbeat.activity = f"step {replica.state.step}, evaluating"
        with replica.averaged_weights():
            evaluation = self._evaluator.evaluate(replica.model, replica.state.step)
        self._record(evaluation)
        replica.state, links = update_best(replica.state, evaluation, self._settings.evaluation.patience_metric)
        return links

    def _finish(self, reason: str) -> str:
        """Average checkpoints if `checkpoint.average` is set. Returns the reason of the end unchanged."""
        settings, step = self._settings.checkpoint, self._replica.state.step
        found = save_average(settings, self._checkpoints, self._architecture, self._cluster, self._evaluator, step)
        if found is not None:
            self._record(found)
        return reason

    def _end(self, reason: str) -> None:
        self._take_spans()
        state, memory_bytes = self._replica.state, peak_memory_bytes(self._cluster.device)
        ended = RunEnded(step=state.step, reason=reason, elapsed_s=state.elapsed_s, peak_memory_bytes=memory_bytes)
        self._record(self._event_sync.end(self._cluster, self._membership.storage, ended))
        self._checkpoints.raise_if_failed()

    def _take_spans(self) -> StepSpans:
        """The time since the last call. Adds it to the elapsed time of the run."""
        spans = self._timer.take()
        self._replica.add_elapsed(spans.elapsed_s)
        return spans

    def _announce_world(self, workers: Sequence[str]) -> None:
        """Record the start of the run, and later every change of the world."""
        step = self._replica.state.step
        if not self._event_sync.join_world(self._cluster, self._membership.storage):
            self._record(WorldChanged(step=step, workers=list(workers)))
        else:
            self._timer.take()  # Time before the start of the run, such as that of loading libraries.
            for event in start_events(
                self._run.path.name, self._cluster, workers, self._replica.model, self._precision, self._data.manifest,
                self._lengths, step, self._event_sync.session_at_s, self._settings, self._start,
            ):  # fmt: skip
                self._record(event)
        self._take_spans()


def _make_loader(settings: Settings, data: DataSet, micro_batch_tokens: int, *, fixed_sizes: bool) -> DataLoader:
    pairs, batch = data.pairs("train"), settings.batch
    return DataLoader(pairs, data.tokenizer, batch.tokens, batch.seed, micro_batch_tokens, fixed_sizes=fixed_sizes)

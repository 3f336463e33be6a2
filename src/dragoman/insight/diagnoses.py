"""Diagnoses: what limits the speed of a run, and what went wrong in it. A healthy run has none."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from dragoman import events
from dragoman.insight.answer import Answer
from dragoman.insight.fine_tuning import diagnose_worsened
from dragoman.insight.forgetting import diagnose_forgetting
from dragoman.insight.gpu_diagnoses import diagnose_gpus
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import (
    NOTICEABLE_WAIT,
    mean_of,
    mean_part_s,
    measured_steps,
    split_evenly,
    time_after_compiling,
)
from dragoman.insight.time_use import EVALUATION, time_by_activity
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.number_format import count, percent, size, span
from dragoman.telemetry.event_messages import divergence_remedy
from dragoman.telemetry.worker_losses import worker_name

MIN_EXCHANGES = 5
"""Exchanges that the diagnosis of a straggler needs."""
STRAGGLER_CONSISTENCY = 0.7
"""Part of the exchanges in which a straggler must be the slowest."""
MIN_TREND_STEPS = 200
"""Steps that the trend of the training loss needs."""
CHECKPOINT_STALL_LIMIT = 0.05
"""Part of a run's time that checkpoint stalls may take."""
COMPILE_LIMIT = 0.05
"""Part of step time, after the first steps, that compiling may take."""
MIN_COMPILING_STEPS = 6
"""Steps that compile, to be more than the first passes of a few sizes: two for each."""
MIN_EVALUATIONS = 5
"""Evaluations that a diagnosis of their cost needs."""
EVALUATION_LIMIT = 0.30
"""Part of a run's time that evaluations may take."""
MEMORY_LIMIT = 0.95
"""Part of a machine's memory that may be in use."""
BUSY_CPU = 0.9
"""Part of all cores' time from which they are all in use."""
DISK_WAIT = 0.02
"""Part of all cores' time in which they wait for a disk. A loader that does nothing else is one core of many."""
DISK_BYTES_PER_S = 20e6
"""Reads from a disk that are more than a data set in the page cache needs."""


def diagnose(history: RunHistory) -> list[Answer]:
    """All diagnoses of a run, the most severe first."""
    checks: tuple[Callable[[RunHistory], Iterator[Answer]], ...] = (
        _diverging, _drifted_replicas, _lost_workers, _late_workers, _failed_checkpoints, _straggler, _data_wait,
        _recompiling, _pauses, _out_of_memory, _memory_almost_full, diagnose_gpus, diagnose_worsened,
        diagnose_forgetting,
    )  # fmt: skip
    return [found for check in checks for found in check(history)]


def _diverging(history: RunHistory) -> Iterator[Answer]:
    skipped, rolled_back = history.incidents_of(events.StepSkipped), history.incidents_of(events.RolledBack)
    key, question = "diverging", "Is training diverging?"
    remedy = divergence_remedy(is_fine_tuning=history.started.start is not None)
    max_skipped_steps = history.setting("training", "max_skipped_steps") or 1
    is_stuck = max((event.consecutive for event in skipped), default=0) >= max_skipped_steps
    if rolled_back or is_stuck or (history.ended is not None and history.ended.reason == "diverged"):
        evidence = [
            *(f"{event.consecutive} steps in a row skipped, up to step {count(event.step)}" for event in skipped[-1:]),
            *(f"rolled back from step {count(event.from_step)} to {count(event.to_step)}" for event in rolled_back),
        ]
        text = f"Yes: loss not finite in {count(len(skipped))} steps; {len(rolled_back)} rollbacks."
        yield Answer(key, question, text, evidence, remedy=remedy, is_warning=True)
    elif history.known_steps >= MIN_TREND_STEPS:
        tenths = split_evenly(history.spans, history.known_steps // 10)[:10]
        means = [mean_of(tenth, "nll") for tenth in tenths]
        # The loss of the first step is that of the model at the start: nothing should stay above it.
        levels = [history.spans[0].nll, *means]
        if means[-1] > 1.2 * min(levels[:-1]) and means[-2] > 1.1 * min(levels[:-2]):
            since = tenths[max(0, levels.index(min(levels)) - 1)][0].first_step
            rise = f"from {min(levels):.2f} to {means[-1]:.2f}"
            text = f"Yes: the training loss has risen {rise} since about step {count(since)}."
            evidence = ["training loss by tenths of the run: " + ", ".join(f"{mean:.2f}" for mean in means)]
            yield Answer(key, question, text, evidence, confidence="likely", remedy=remedy, is_warning=True)


def _drifted_replicas(history: RunHistory) -> Iterator[Answer]:
    drifts = history.incidents_of(events.ReplicasDrifted)
    if drifts:
        first = drifts[0]
        text = f"No: since step {count(first.step)}, those of {', '.join(first.workers)} differ"
        yield Answer(
            "drifted",
            "Do all workers have the same weights?",
            f"{text} from those of the others." if first.has_majority else f"{text}.",
            [f"step {count(event.step)}: {', '.join(event.workers)}" for event in drifts[-3:]],
            remedy="Interrupt the run and resume it, which makes the weights equal again. If it recurs, test the "
            "memory of that machine. GPUs of different models round differently: slow drift between them is normal.",
            is_warning=True,
        )


def _lost_workers(history: RunHistory) -> Iterator[Answer]:
    losses = history.incidents_of(events.WorkersLost)
    if losses:
        evidence = [
            f"after step {count(event.step)}: {', '.join(event.workers) or 'a connection'} ({event.reason})"
            for event in losses
        ]
        lost = _count_times(Counter(worker_name(worker) for event in losses for worker in event.workers))
        remedy = "Check that machine's power, memory and network."
        if not history.incidents_of(events.WorldChanged):  # Only elastic worlds change.
            remedy += " With `dragoman launch --elastic` the others continue without it."
        yield Answer(
            "lost",
            "Were workers lost?",
            f"Yes: {lost or 'connections failed'}.",
            evidence,
            remedy=remedy,
            is_warning=True,
        )


def _late_workers(history: RunHistory) -> Iterator[Answer]:
    incidents = [event for event in history.incidents_of(WorkersLate) if event.workers]
    if incidents:
        late = _count_times(Counter(worker_name(worker) for event in incidents for worker in event.workers))
        merged = sum(len(event.workers) for event in history.incidents_of(LateStepsMerged))
        yield Answer(
            "late",
            "Were workers late at synchronisations?",
            f"Yes: {late}. The others continued; late steps were merged {merged} times.",
            [f"after step {count(event.step)}: {', '.join(event.workers)}" for event in incidents[-3:]],
            remedy="Give that machine a smaller share (`training.shares`), or raise `exchange.grace_s`.",
            is_warning=True,
        )


def _count_times(workers: Counter[str]) -> str:
    return ", ".join(f"{worker} {times} times" if times > 1 else worker for worker, times in workers.items())


def _failed_checkpoints(history: RunHistory) -> Iterator[Answer]:
    failed = history.incidents_of(events.CheckpointFailed)
    if failed:
        yield Answer(
            "checkpoint-failed",
            "Are checkpoints written?",
            f"Not all: {len(failed)} could not be written.",
            [f"step {count(event.step)}: {event.reason}" for event in failed[-3:]],
            remedy="Free disk space. Older checkpoints are kept.",
            is_warning=True,
        )


def _straggler(history: RunHistory) -> Iterator[Answer]:
    exchanges = [step for step in measured_steps(history) if len(step.ready_s) > 1]
    if len(exchanges) < MIN_EXCHANGES or len({len(step.ready_s) for step in exchanges}) > 1:
        return
    world = len(exchanges[0].ready_s)
    ready_s = [fmean(step.ready_s[rank] for step in exchanges) for rank in range(world)]
    slowest = max(range(world), key=ready_s.__getitem__)
    others_s = fmean(seconds for rank, seconds in enumerate(ready_s) if rank != slowest)
    times_slowest = sum(max(range(world), key=step.ready_s.__getitem__) == slowest for step in exchanges)
    # Exchanges may be several steps apart: the wait is a share of the time between them.
    interval_s = sum(step.step_s for step in measured_steps(history)) / len(exchanges)
    wait = (ready_s[slowest] - others_s) / interval_s
    if wait < NOTICEABLE_WAIT or times_slowest < STRAGGLER_CONSISTENCY * len(exchanges):
        return
    straggler = history.workers[slowest] if slowest < len(history.workers) else f"worker {slowest}"
    yield Answer(
        "straggler",
        "Is one worker slowing down the others?",
        f"Yes: {straggler} needs {span(ready_s[slowest])} to be ready to exchange, the others {span(others_s)}; "
        f"straggler wait is {percent(wait)} of the time.",
        [
            f"slowest in {times_slowest} of {len(exchanges)} exchanges, steps {exchanges[0].step:,} to "
            f"{exchanges[-1].step:,}",
            "time until ready, by rank: " + ", ".join(f"{seconds:.3f} s" for seconds in ready_s),
        ],
        remedy="Set training.shares=auto, so that each worker's share of the batch follows its speed; check what else "
        "runs on that machine; or train without it.",
        is_warning=True,
    )


def _data_wait(history: RunHistory) -> Iterator[Answer]:
    steps = measured_steps(history)
    wait_s, step_s = mean_part_s(steps, "data wait"), mean_of(steps, "step_s")
    if wait_s > NOTICEABLE_WAIT * step_s:
        evidence, remedy = _explain_data_wait(history)
        yield Answer(
            "input",
            "Does training wait for data?",
            f"Yes: {percent(wait_s / step_s)} of step time.",
            [f"{wait_s:.3f} s of a {step_s:.3f} s step, steps {steps[0].step:,} to {steps[-1].step:,}", *evidence],
            remedy=remedy,
            is_warning=True,
        )


def _explain_data_wait(history: RunHistory) -> tuple[list[str], str]:
    """Evidence whether the data loader lacks a CPU core or a faster disk, and the remedy."""
    readings = [reading for samples in history.host_readings.values() for reading in samples]
    faster_disk, more_cpu = "put the data set on a local disk", "leave a CPU core free for the data loader"
    if not readings:
        return [], f"{faster_disk.capitalize()}, {more_cpu}, or use larger batches."
    cpu_use, io_wait = mean_of(readings, "cpu_use"), mean_of(readings, "io_wait")
    bytes_per_s = sum(reading.disk_read_bytes for reading in readings) / sum(reading.span_s for reading in readings)
    evidence = [
        f"cores are busy {percent(cpu_use)} of their time, and wait {percent(io_wait)} of it for disks, which read "
        f"{size(bytes_per_s)}/s"
    ]
    if io_wait > DISK_WAIT or bytes_per_s > DISK_BYTES_PER_S:
        return evidence, f"The disk is slow: {faster_disk}, or use more memory for its cache."
    if cpu_use > BUSY_CPU:
        return evidence, f"All cores are busy: {more_cpu}, or start fewer processes there."
    return evidence, (
        "Neither its cores nor its disks are busy: check whether the data set is on network storage, and whether this "
        f"process may use only few cores. Then {faster_disk}, or {more_cpu}."
    )


def _recompiling(history: RunHistory) -> Iterator[Answer]:
    steps = measured_steps(history)
    compile_s, steps_s = sum(step.compile_s for step in steps), sum(step.step_s for step in steps)
    compiling = [step for step in steps if step.compile_s > 0]
    if len(compiling) >= MIN_COMPILING_STEPS and compile_s > COMPILE_LIMIT * steps_s:
        yield Answer(
            "compiling",
            "Does torch recompile again and again?",
            f"Yes: {percent(compile_s / steps_s)} of the time, in {len(compiling)} steps.",
            [f"steps {compiling[0].step:,} to {compiling[-1].step:,}, {span(compile_s)} in total"],
            remedy="Shapes change that should be static: file a bug with this report. Until then, leave "
            "training.micro_batch_tokens at its default.",
            is_warning=True,
        )


def _pauses(history: RunHistory) -> Iterator[Answer]:
    """Evaluations and checkpoints. Each evaluation also saves a checkpoint, whose stall is then due to it."""
    evaluated = {done.step for done in history.evaluations}
    saved_by_evaluation = [saved for saved in history.checkpoints if saved.step in evaluated]
    other_checkpoints = [saved for saved in history.checkpoints if saved.step not in evaluated]
    if evaluations := _evaluation_time(history, sum(saved.stall_s for saved in saved_by_evaluation)):
        yield evaluations
        yield from _checkpoint_stalls(history, other_checkpoints, "Save less often with checkpoint.every")
    elif len(saved_by_evaluation) > len(other_checkpoints):
        remedy = "Evaluate less often with evaluation.every, because each evaluation saves a checkpoint"
        yield from _checkpoint_stalls(history, history.checkpoints, remedy)
    else:
        yield from _checkpoint_stalls(history, history.checkpoints, "Save less often with checkpoint.every")


def _evaluation_time(history: RunHistory, stall_s: float) -> Answer | None:
    """The diagnosis of evaluations whose checkpoints stalled training for some time; None if they are short."""
    if len(history.evaluations) < MIN_EVALUATIONS:
        return None
    first, *others = history.evaluations  # The first one also prepares: on a GPU it captures the search.
    evaluations_s = sum(done.evaluation_s for done in others)
    run_s = max(evaluations_s, time_after_compiling(history) - first.evaluation_s)
    if evaluations_s <= EVALUATION_LIMIT * run_s:
        return None
    evidence = [
        f"{len(others)} evaluations took {span(evaluations_s)} of {span(run_s)}, without the first one and without "
        "compiling"
    ]
    if stall_s > CHECKPOINT_STALL_LIMIT * run_s:
        evidence.append(f"the checkpoints of evaluations stalled training for another {span(stall_s)}")
    return Answer(
        "evaluation",
        "Do evaluations take much time?",
        f"Yes: {percent(time_by_activity(history)[EVALUATION] / history.elapsed_s)} of the run.",
        evidence,
        remedy="Evaluate less often with evaluation.every, or translate fewer sentences with evaluation.sentences.",
        is_warning=True,
    )


def _checkpoint_stalls(
    history: RunHistory, checkpoints: Sequence[events.CheckpointSaved], fewer: str
) -> Iterator[Answer]:
    """The diagnosis of checkpoints; `fewer` says how to save fewer of them."""
    stall_s = sum(saved.stall_s for saved in checkpoints)
    run_s = max(stall_s, time_after_compiling(history))
    if len(checkpoints) > 1 and stall_s > CHECKPOINT_STALL_LIMIT * run_s:
        last = checkpoints[-1]
        bytes_per_s = last.size_bytes / max(last.write_s, 1e-9)
        yield Answer(
            "checkpoint-stalls",
            "Do checkpoints stall training?",
            f"Yes: {percent(stall_s / run_s)} of the time.",
            [
                f"{len(checkpoints)} checkpoints stalled training for {span(stall_s)}",
                f"the last one, {size(last.size_bytes)}, was written at {size(bytes_per_s)}/s",
            ],
            remedy=f"{fewer}, or write to a faster disk.",
            is_warning=True,
        )


def _out_of_memory(history: RunHistory) -> Iterator[Answer]:
    splits = history.incidents_of(events.MicroBatchesSplit)
    if not splits:
        return
    times = "once" if len(splits) == 1 else f"{len(splits)} times"
    split = splits[-1].micro_batches
    steps = [step for step in history.worker_steps.get(splits[-1].worker, ()) if step.step > splits[-1].step]
    fits_again = bool(steps) and steps[-1].micro_batches <= split / 2
    now = f"larger micro-batches fit again, {steps[-1].micro_batches}" if fits_again else f"now {split} micro-batches"
    yield Answer(
        "out-of-memory",
        "Did batches fit into memory?",
        f"Not always: out of memory {times}, {now} per step. The loss is not affected.",
        [f"step {count(event.step)} on worker {event.worker}: {event.reason}" for event in splits[-3:]],
        remedy="End other programs that use the memory. If there are none, lower training.micro_batch_tokens, so that "
        "the next run fits from the start, or lower batch.tokens.",
        is_warning=not fits_again,
    )


def _memory_almost_full(history: RunHistory) -> Iterator[Answer]:
    for host, readings in history.host_readings.items():
        used = readings[-1].memory_used_bytes / readings[-1].memory_bytes
        if used > MEMORY_LIMIT:
            yield Answer(
                "memory",
                "Is a machine running out of memory?",
                f"Yes: {percent(used)} of {size(readings[-1].memory_bytes)} in use on {host}.",
                [f"{size(readings[-1].memory_used_bytes)} used at the latest reading"],
                remedy="Stop other processes there, or start fewer workers on it.",
                is_warning=True,
            )

"""What limits the speed of a run, and what went wrong in it. A healthy run gets an empty list."""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean

from dragoman import events
from dragoman.insight.answer import Answer
from dragoman.insight.run_history import RunHistory, mean_of
from dragoman.insight.validation_curve import FEWEST
from dragoman.terminal import count, size, span

WINDOW = 1000
"""Latest steps that verdicts on speed are about."""
FEWEST_STEPS = 10
"""Steps below which nothing is said about speed."""
WAITING = 0.10
"""Part of a step that waiting may take before it is worth a word."""
MUCH = 0.25
"""Part of a step from which on it is the bottleneck."""
STALLED = 0.05
"""Part of a run's time that may go into standing still for checkpoints."""
RECOMPILED = 0.05
"""Part of the time after the first steps that may go into compiling."""
JUDGED = 0.30
"""Part of a run's time that may go into evaluations."""
FULL = 0.95
"""Part of a machine's memory from which on it is about to run out."""
HOT = 0.20
"""Part of the time in which a GPU may lower its clocks for heat."""


def find_limits(story: RunHistory) -> list[Answer]:
    """Everything that should be changed or known, the gravest first."""
    checks: tuple[Callable[[RunHistory], Iterator[Answer]], ...] = (
        _diverging, _lost, _failed_saves, _stragglers, _starved, _recompiled, _stalled, _judged_often, _cut,
        _full_memory, _hot,
    )  # fmt: skip
    return [found for check in checks for found in check(story)]


def recent(story: RunHistory) -> list[events.StepDone]:
    """The steps that verdicts on speed are about: none where there are too few, or their parts were not measured."""
    steps = story.steady[-WINDOW:]
    return steps if len(steps) >= FEWEST_STEPS and mean_of(steps, "compute_s") > 0 else []


def exposed_data_s(step: events.StepDone) -> float:
    """A GPU may compute earlier steps while Python waits for a batch: only what is left of the step was waited for."""
    return min(step.data_s, max(0.0, step.step_s - step.compute_s))


def _diverging(story: RunHistory) -> Iterator[Answer]:
    skipped, back = story.of(events.StepSkipped), story.of(events.RolledBack)
    remedy = (
        "Lower schedule.learning_rate, lengthen schedule.warmup_steps, set optimizer.clip_norm, or look for broken "
        "pairs."
    )
    question = "Does training diverge?"
    stuck = max((event.consecutive for event in skipped), default=0) >= (
        story.setting("training", "max_skipped_steps") or 1
    )
    if back or stuck or (story.ended is not None and story.ended.reason == "diverged"):
        yield Answer(
            "diverging",
            question,
            f"Yes: the loss was not finite in {count(len(skipped))} steps, and the run went back {len(back)} times.",
            [
                *(f"skipped {event.consecutive} in a row up to step {count(event.step)}" for event in skipped[-1:]),
                *(f"back from step {count(event.from_step)} to {count(event.to_step)}" for event in back),
            ],
            remedy=remedy,
            alarm=True,
        )
        return
    if len(story.steps) < 200:
        return
    part = len(story.steps) // 10
    means = [fmean(step.nll for step in story.steps[n * part : (n + 1) * part]) for n in range(10)]
    # The first step's is that of a model which knows nothing: nothing should be above it for long.
    levels = [story.steps[0].nll, *means]
    if means[-1] > 1.2 * min(levels[:-1]) and means[-2] > 1.1 * min(levels[:-2]):
        at = story.steps[max(0, levels.index(min(levels)) - 1) * part].step
        yield Answer(
            "diverging",
            question,
            f"Yes: the training loss rose from {min(levels):.2f} to {means[-1]:.2f} since about step {count(at)}.",
            ["training loss by tenths of the run: " + ", ".join(f"{mean:.2f}" for mean in means)],
            sure="likely",
            remedy=remedy,
            alarm=True,
        )


def _lost(story: RunHistory) -> Iterator[Answer]:
    lost = story.of(events.WorkersLost)
    if lost:
        evidence = [
            f"after step {count(event.step)}: {', '.join(event.workers) or 'a connection'} ({event.reason})"
            for event in lost
        ]
        gone = Counter(worker.partition(" (")[0] for event in lost for worker in event.workers)
        who = ", ".join(f"{name} {times} times" if times > 1 else name for name, times in gone.items())
        yield Answer(
            "lost",
            "Were machines lost?",
            f"Yes: {who or 'connections failed'}.",
            evidence,
            remedy="Look at the machine that is named: its power, its memory, its network. "
            "`dragoman launch --elastic` goes on without it meanwhile.",
            alarm=True,
        )


def _failed_saves(story: RunHistory) -> Iterator[Answer]:
    failed = story.of(events.CheckpointFailed)
    if failed:
        yield Answer(
            "checkpoint-failed",
            "Are checkpoints written?",
            f"Not all: {len(failed)} could not be written.",
            [f"step {count(event.step)}: {event.reason}" for event in failed[-3:]],
            remedy="Make room on the disk; older checkpoints are kept.",
            alarm=True,
        )


def _stragglers(story: RunHistory) -> Iterator[Answer]:
    steps = [step for step in recent(story) if len(step.ready_s) > 1]
    if len(steps) < FEWEST or len({len(step.ready_s) for step in steps}) > 1:
        return
    world = len(steps[0].ready_s)
    ready_s = [fmean(step.ready_s[rank] for step in steps) for rank in range(world)]
    slowest = max(range(world), key=ready_s.__getitem__)
    others_s = fmean(spent for rank, spent in enumerate(ready_s) if rank != slowest)
    met = [max(range(world), key=step.ready_s.__getitem__) for step in steps]
    # Meetings may be several steps apart: what the others wait is spread over them.
    step_s = sum(step.step_s for step in recent(story)) / len(steps)
    waited = (ready_s[slowest] - others_s) / step_s
    if waited < WAITING or met.count(slowest) < 0.7 * len(met):
        return
    named = story.workers[slowest] if slowest < len(story.workers) else f"worker {slowest}"
    yield Answer(
        "straggler",
        "Does one worker hold up the others?",
        f"Yes: {named} takes {span(ready_s[slowest])} where the others take {span(others_s)}; they wait for it for "
        f"{waited:.0%} of the time.",
        [
            f"slowest in {met.count(slowest)} of {len(met)} exchanges, steps {steps[0].step:,} to {steps[-1].step:,}",
            "ready after " + ", ".join(f"{spent:.3f} s" for spent in ready_s) + " by rank",
        ],
        remedy="Let shares follow the machines' speeds with training.shares=auto, look for what else runs there, or go "
        "on without it.",
        alarm=True,
    )


def _starved(story: RunHistory) -> Iterator[Answer]:
    steps = recent(story)
    if not steps:
        return
    waited_s, step_s = fmean(exposed_data_s(step) for step in steps), mean_of(steps, "step_s")
    if waited_s > WAITING * step_s:
        yield Answer(
            "input",
            "Does training wait for its data?",
            f"Yes: {waited_s / step_s:.0%} of each step.",
            [f"{waited_s:.3f} s of {step_s:.3f} s, steps {steps[0].step:,} to {steps[-1].step:,}"],
            remedy="Put the data set on a local disk, free a core for the thread that makes batches, or use larger "
            "batches.",
            alarm=True,
        )


def _stalled(story: RunHistory) -> Iterator[Answer]:
    stall_s = sum(saved.stall_s for saved in story.checkpoints)
    if len(story.checkpoints) > 1 and stall_s > STALLED * story.elapsed_s:
        saved = story.checkpoints[-1]
        speed = saved.size_bytes / max(saved.write_s, 1e-9)
        yield Answer(
            "checkpoint-stalls",
            "Does training stand still for checkpoints?",
            f"Yes: {stall_s / story.elapsed_s:.0%} of the time.",
            [
                f"{len(story.checkpoints)} checkpoints held training up for {span(stall_s)}",
                f"the last one, {size(saved.size_bytes)}, was written at {size(speed)}/s",
            ],
            remedy="Save more seldom with checkpoint.every, or write to a faster disk.",
            alarm=True,
        )


def _recompiled(story: RunHistory) -> Iterator[Answer]:
    steps = recent(story)
    compiled_s, steps_s = sum(step.compile_s for step in steps), sum(step.step_s for step in steps)
    if compiled_s > RECOMPILED * steps_s > 0:
        again = [step for step in steps if step.compile_s > 0]
        yield Answer(
            "compiling",
            "Does torch compile again and again?",
            f"Yes: for {compiled_s / steps_s:.0%} of the time, in {len(again)} steps.",
            [f"steps {again[0].step:,} to {again[-1].step:,}, {span(compiled_s)} in all"],
            remedy="Shapes change that should not: report it with this run's report, and meanwhile leave "
            "training.micro_batch_tokens at its default.",
            alarm=True,
        )


def _judged_often(story: RunHistory) -> Iterator[Answer]:
    spent_s = sum(done.evaluation_s for done in story.evaluations)
    if len(story.evaluations) >= FEWEST and spent_s > JUDGED * story.elapsed_s:
        yield Answer(
            "evaluation",
            "Do evaluations take much time?",
            f"Yes: {spent_s / story.elapsed_s:.0%} of it.",
            [f"{len(story.evaluations)} evaluations took {span(spent_s)} of {span(story.elapsed_s)}"],
            remedy="Evaluate more seldom with evaluation.every, or translate fewer lines with evaluation.sentences.",
            alarm=True,
        )


def _cut(story: RunHistory) -> Iterator[Answer]:
    cuts = story.of(events.MicroBatchesSplit)
    if cuts:
        yield Answer(
            "memory-cuts",
            "Did batches fit into memory?",
            f"Not at first: shares were cut {len(cuts)} times, at last into {cuts[-1].micro_batches} pieces. Training "
            "is exact all the same.",
            [f"step {count(cut.step)} on worker {cut.worker}: {cut.reason}" for cut in cuts[-3:]],
            remedy="Lower training.micro_batch_tokens, so that the next run need not find out; or use batch.tokens.",
            alarm=True,
        )


def _full_memory(story: RunHistory) -> Iterator[Answer]:
    for host, looks in story.sensed.items():
        used = looks[-1].memory_used_bytes / looks[-1].memory_bytes
        if used > FULL:
            yield Answer(
                "memory",
                "Does a machine run out of memory?",
                f"{host} is about to: {used:.0%} of {size(looks[-1].memory_bytes)} are in use.",
                remedy="End what else runs there, or start fewer workers on it.",
                alarm=True,
            )


def _hot(story: RunHistory) -> Iterator[Answer]:
    for host, looks in story.sensed.items():
        hot = [gpu for look in looks for gpu in look.gpus if "heat" in gpu["throttled"]]
        seen = [gpu for look in looks for gpu in look.gpus]
        if seen and len(hot) > HOT * len(seen):
            warm = fmean(gpu["temperature_c"] for gpu in hot)
            yield Answer(
                "throttled",
                "Do GPUs lower their clocks?",
                f"Yes: on {host}, for heat, in {len(hot) / len(seen):.0%} of the time.",
                [f"{warm:.0f} degrees, {fmean(gpu['clock_mhz'] for gpu in hot):,.0f} MHz then"],
                remedy="Cool the machine, or lower the GPU's power limit.",
                alarm=True,
            )

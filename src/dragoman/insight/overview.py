"""Overview of a run in three sentences, as a colleague would give it: how it goes, what limits it, what to do."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.insight.answer import Answer
from dragoman.insight.fine_tuning import describe_result_gains
from dragoman.insight.run_history import RunHistory
from dragoman.insight.run_result import find_result
from dragoman.insight.step_bound import bound_of
from dragoman.insight.step_breakdown import MIN_SPEED_STEPS, NOTICEABLE_WAIT, measured_steps
from dragoman.insight.time_and_cost import estimate_remaining_time, find_hourly_cost
from dragoman.insight.time_use import LOST_WORK, OTHER
from dragoman.number_format import count, percent, span
from dragoman.telemetry.event_messages import describe_origin, message_for
from dragoman.telemetry.remaining_time import describe_remaining_time

STATEMENTS = {
    "diverging": "Training diverges",
    "drifted": "The workers do not all have the same weights",
    "checkpoint-failed": "Not all checkpoints are written",
    "overfitting": "It overfits",
    "worsened": "Fine-tuning made the model worse",
    "forgetting": "It forgets what it could do before",
    "network": "The network is the bottleneck",
    "straggler": "One worker slows down the others",
    "lost": "Workers were lost",
    "input": "Training waits for data",
    "compiling": "PyTorch recompiles again and again",
    "checkpoint-stalls": "Checkpoints stall training",
    "evaluation": "Evaluations take much of the time",
    "out-of-memory": "Batches did not fit into memory",
    "memory": "A machine is running out of memory",
    "launches": "The GPU waits for Python",
    "small-batch": "The batch is too small to fill the GPU",
    "shared-gpu": "Another process uses the GPU",
    "throttled": "GPUs are throttled",
}
"""Warnings as statements, by key. Other warnings are stated as question and answer."""
SEVERITY = (
    "diverging", "drifted", "checkpoint-failed", "worsened", "overfitting", "forgetting", "network", "straggler",
)  # fmt: skip
"""Warnings that come before all others, the most severe first. The others keep the order of the diagnoses."""
USEFUL = ("compute", "optimizer update")
MOSTLY = 0.5
"""Part of the run that computing must take, or something else takes most of it."""
SMALL = 0.03
"""Part of the run below which an activity is not named."""
ENDINGS = {
    "finished": "Finished",
    "stopped early": "Stopped early, because the validation score no longer improved,",
    "interrupted": "Interrupted",
    "diverged": "Diverged: the loss stayed not finite even at lower learning rates. It ended",
}


@dataclass(frozen=True)
class Overview:
    """Three sentences about a run, and what else must not be overlooked."""

    how: str
    """How it goes: state, progress, time, cost and quality."""
    limit: str
    """What limits it: the most severe warning, or the largest part of the time."""
    advice: str
    """What to do."""
    more: list[str]
    """All other warnings, with their remedies."""

    @property
    def sentences(self) -> list[str]:
        return [self.how, self.limit, self.advice, *self.more]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_run(
    history: RunHistory,
    state: str,
    diagnoses: Sequence[Answer],
    answers: Sequence[Answer],
    time_use: Mapping[str, float],
) -> Overview:
    """The overview of a run in a state, from the statements that the report makes about it."""
    by_key = {answer.key: answer for answer in answers}
    found = [answer for answer in (*diagnoses, *answers) if answer.is_warning]
    warnings = sorted(found, key=lambda each: SEVERITY.index(each.key) if each.key in SEVERITY else len(SEVERITY))
    worst = warnings[0] if warnings else None
    return Overview(
        how=_join(
            _describe_progress(history, state), describe_origin(history.started.start), describe_result_gains(history)
        ),
        limit=_describe_time_use(history, time_use) if worst is None else _state(worst),
        advice=_advise(history, state, worst, by_key["trained"]),
        more=[f"{_state(warning)} {warning.remedy}" for warning in warnings[1:]],
    )


def _describe_progress(history: RunHistory, state: str) -> str:
    done = f"step {count(history.step)} of {count(history.total_steps)}"
    spent = f"after {span(history.elapsed_s)}{_cost(history)}"
    quality = f"; {scores}" if (scores := _best_scores(history)) else ""
    match state:
        case "running":
            return f"Running: {done} {spent}, {_describe_remaining(history)}{quality}."
        case "failed" if history.failed is not None and (message := message_for(history.failed)) is not None:
            return f"{message.text} The run stopped at {done} {spent}{quality}."
        case "not responding":
            return f"Not responding, probably killed: the last event was at {done}, {spent}{quality}."
    return f"{ENDINGS.get(state, state.capitalize())} at {done} {spent}{quality}."


def _best_scores(history: RunHistory) -> str:
    """The best BLEU and the lowest validation loss, which may be of different steps."""
    result = find_result(history)
    if result is None:
        return ""
    lowest = min(
        (done for done in history.evaluations if math.isfinite(done.nll)), key=lambda done: done.nll, default=None
    )
    if lowest is None or lowest.nll >= result.nll:
        return f"{result.scores} at step {count(result.step)}"
    best = "" if result.bleu is None else f"BLEU {result.bleu:.1f} at step {count(result.step)}, "
    return f"{best}lowest validation loss {lowest.nll:.3f} at step {count(lowest.step)}"


def _describe_remaining(history: RunHistory) -> str:
    remaining, cost = estimate_remaining_time(history), find_hourly_cost(history)
    text = describe_remaining_time(remaining)
    if remaining is None or cost is None:
        return text
    return f"{text} ({cost.format(history.elapsed_s + remaining.total_s)} in total)"


def _cost(history: RunHistory) -> str:
    cost = find_hourly_cost(history)
    return "" if cost is None else f" and {cost.format(history.elapsed_s)}"


def _state(warning: Answer) -> str:
    """A warning as a statement: `Yes: 30 % of step time.` becomes `Training waits for data: 30 % of step time.`"""
    if warning.key not in STATEMENTS:
        return f"{warning.question} {warning.text}"
    return re.sub(r"^[\w ]+(?=[:,])", STATEMENTS[warning.key], warning.text, count=1)


def _describe_time_use(history: RunHistory, time_use: Mapping[str, float]) -> str:
    total_s = sum(time_use.values())
    if not measured_steps(history) or not total_s:
        return f"Nothing unusual so far; what limits the speed is known after {MIN_SPEED_STEPS} typical steps."
    shares = {activity: seconds / total_s for activity, seconds in time_use.items()}
    useful, bound = sum(shares[activity] for activity in USEFUL), bound_of(history)
    bound_by = "" if bound is None or bound.kind == "computing" else f", bound by {bound.kind}"
    device = "CPU" if history.started.device == "CPU" else "GPU"
    rest = max((activity for activity in shares if activity not in USEFUL), key=lambda activity: shares[activity])
    named = "not part of any recorded activity" if rest == OTHER else rest
    largest = f"{named}, {percent(shares[rest])}" if shares[rest] >= SMALL else ""
    lost = shares[LOST_WORK]
    if lost >= NOTICEABLE_WAIT:
        text = f"{percent(lost)} of the run is lost work, because it went back to a checkpoint and repeated steps"
        return f"{text}; the {device} computes and updates weights for {percent(useful)}."
    if useful >= MOSTLY:
        text = f"Nothing unusual: the {device} computes and updates weights for {percent(useful)} of the run{bound_by}"
        return f"{text}; most of the rest is {largest}." if largest else f"{text}."
    text = f"No fault found, but the {device} computes and updates weights for only {percent(useful)} of the run"
    return f"{text}; most of the rest is {largest}."


def _advise(history: RunHistory, state: str, worst: Answer | None, trained: Answer) -> str:
    remedy = "" if worst is None else worst.remedy
    result = find_result(history)
    match state:
        case "running":
            return _advise_running(worst, trained)
        case "failed":
            return _join(f"Fix that error, then {_resume(history)}.", remedy)
        case "not responding" | "interrupted":
            return _join(f"To continue, {_resume(history)}.", remedy)
        case "diverged":
            return _join("Start a new run with other settings.", remedy)
    use = "" if result is None else f"Use {result}"
    if worst is not None and worst.key == "overfitting":
        return remedy  # It names the checkpoint to use.
    if worst is not None:
        return _join(f"{use}." if use else "", f"For the next run: {_lower(remedy)}")
    if trained.remedy and use:
        return f"{use}; {_lower(_reason(trained))}: {_lower(trained.remedy)}"
    return f"{use}." if use else "Evaluate the model: `dragoman score` translates a test set and computes BLEU."


def _advise_running(worst: Answer | None, trained: Answer) -> str:
    if worst is not None:
        must_stop = worst.key in ("overfitting", "worsened") or (
            worst.key == "diverging" and worst.confidence == "likely"
        )
        return f"Stop: {_lower(worst.remedy)}" if must_stop else worst.remedy
    if trained.confidence == "unknown":
        return "Let it run."
    if trained.text.startswith("Trained too long"):
        return f"Stop if it continues like this: {_lower(_reason(trained))}."
    if trained.text.startswith("Yes"):
        return f"Let it run to its end, or stop to save time: {_lower(_reason(trained))}."
    return f"Let it run: {_lower(_reason(trained))}."


def _reason(trained: Answer) -> str:
    return trained.text.partition(": ")[2].rstrip(".")


def _resume(history: RunHistory) -> str:
    if not history.checkpoints:
        return "run the same command again: it starts from the beginning, because no checkpoint was written"
    newest = history.checkpoints[-1].step
    return f"run the same command again: it resumes from the checkpoint of step {count(newest)}"


def _lower(sentence: str) -> str:
    """A sentence to follow a colon. Names such as BLEU stay as they are."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def _join(*sentences: str) -> str:
    return " ".join(filter(None, sentences))

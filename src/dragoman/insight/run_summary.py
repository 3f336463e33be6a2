"""Summary of a run as JSON, for the page and for scripts. Its size is bounded, whatever the length of the run."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dragoman import events
from dragoman.events import StepDone
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.evaluation_sets import compare_sets
from dragoman.insight.fine_tuning import answer_gains
from dragoman.insight.overview import describe_run
from dragoman.insight.run_history import WORKER_STEPS, RunHistory
from dragoman.insight.step_breakdown import STEP_PARTS, count_steps, mean_of, mean_part_s, split_evenly
from dragoman.insight.time_and_cost import estimate_remaining_time, find_hourly_cost
from dragoman.insight.time_use import between_sessions_s, elapsed_at, time_by_activity
from dragoman.telemetry.event_messages import message_for
from dragoman.telemetry.remaining_time import MEASURING

MAX_POINTS = 800
"""Of a curve: a screen has hardly more columns."""
MAX_BREAKDOWN_POINTS = 200
MAX_SENSOR_POINTS = 60
MAX_SAMPLES = 12
MAX_INCIDENTS = 200

Json = dict[str, Any]


def summarize(history: RunHistory, now_s: float) -> Json:
    """Everything that the page shows."""
    remaining = estimate_remaining_time(history) if history.ended is None else None
    cost = find_hourly_cost(history)
    diagnoses, answers, time_use = diagnose(history), answer_all(history), time_by_activity(history)
    evaluations = [_evaluation(history, done) for done in history.evaluations]
    started, state = history.started, history.state(now_s)
    return {
        "run": history.name,
        "state": state,
        "step": history.step,
        "total_steps": history.total_steps,
        "elapsed_s": history.elapsed_s,
        "remaining_s": None if remaining is None else remaining.total_s,
        "remaining": str(remaining or MEASURING) if history.ended is None else None,
        "cost": None if cost is None else {"spent": cost.amount(history.elapsed_s), "currency": cost.currency},
        "overview": describe_run(history, state, diagnoses, answers, time_use).to_json(),
        "time_use": {name: _rounded(seconds) for name, seconds in time_use.items()},
        "between_sessions_s": between_sessions_s(history),
        "fine_tuning": [] if started.start is None else [answer_gains(history).to_json()],
        "diagnoses": [diagnosis.to_json() for diagnosis in diagnoses],
        "answers": [answer.to_json() for answer in answers],
        "about": {
            "workers": history.workers,
            "device": started.device,
            "precision": started.precision,
            "parameters": started.parameters,
            "version": started.version,
            "torch": started.torch_version,
            "start": started.start,
        },
        "curves": _curves(history),
        "evaluations": evaluations,
        "evaluation_sets": compare_sets(evaluations),
        "step_breakdown": _step_breakdown(history),
        "workers": _workers(history),
        "lost": [asdict(loss) for loss in history.losses],
        "hosts": [_host(host, readings) for host, readings in history.host_readings.items()],
        "checkpoints": [
            {"step": saved.step, "name": saved.name, "bytes": saved.size_bytes, "stall_s": saved.stall_s}
            for saved in history.checkpoints
        ],
        "samples": _samples(history),
        "incidents": _incidents(history),
    }


def buckets(items: Sequence[Any], max_buckets: int = MAX_POINTS) -> list[Sequence[Any]]:
    """Groups of neighbours, all of the same size but the last."""
    size = max(1, math.ceil(len(items) / max_buckets))
    return [items[start : start + size] for start in range(0, len(items), size)]


def _curves(history: RunHistory) -> Json:
    """Curves over steps; in a long run, means over neighbouring steps."""
    groups = split_evenly(history.spans, max(1, math.ceil(history.known_steps / MAX_POINTS)))
    return {
        "step": [group[-1].step for group in groups],
        "elapsed_s": [_rounded(elapsed_at(history, group[-1].at_s)) for group in groups],
        "train_loss": [_rounded(mean_of(group, "nll")) for group in groups],
        "learning_rate": [_rounded(group[-1].learning_rate) for group in groups],
        "gradient_norm": [_rounded(mean_of(group, "gradient_norm")) for group in groups],
        "tokens_per_s": [
            _rounded(sum(s.source_tokens + s.target_tokens for s in group) / sum(s.step_s for s in group))
            for group in groups
        ],
    }


def _evaluation(history: RunHistory, done: events.EvaluationDone) -> Json:
    scores = {"loss": done.nll, "bleu": done.bleu, "chrf": done.chrf}
    finite = {name: score if score is not None and math.isfinite(score) else None for name, score in scores.items()}
    elapsed_s = _rounded(elapsed_at(history, done.at_s))
    sets = {
        name: {"loss": found["nll"], "bleu": found["bleu"], "chrf": found["chrf"]} for name, found in done.sets.items()
    }
    others = {"evaluation_s": done.evaluation_s, "sets": sets, "gains": done.gains}
    return {"step": done.step, "elapsed_s": elapsed_s, **finite, **others}


def _step_breakdown(history: RunHistory) -> Json:
    size = max(1, math.ceil(count_steps(history.steady_spans) / MAX_BREAKDOWN_POINTS))
    groups = split_evenly(history.steady_spans, size)
    return {
        "step": [group[-1].step for group in groups],
        "parts": {part: [_rounded(mean_part_s(group, part)) for group in groups] for part in STEP_PARTS},
        "step_s": [_rounded(mean_of(group, "step_s")) for group in groups],
    }


def _workers(history: RunHistory) -> list[Json]:
    """The breakdown of each worker's latest steps, and the time until it was ready to exchange."""
    if len(history.workers) < 2:
        return []
    latest = history.steady_steps[-WORKER_STEPS:]
    exchanges = [step for step in latest if len(step.ready_s) == len(history.workers)]
    return [
        {
            "worker": worker,
            "ready_s": _rounded(sum(s.ready_s[rank] for s in exchanges) / len(exchanges)) if exchanges else None,
            "parts": _mean_parts(history.worker_steps.get(int(worker.split()[1]), [])),
        }
        for rank, worker in enumerate(history.workers)
    ]


def _mean_parts(steps: Sequence[StepDone]) -> Json:
    """Seconds of each part; empty if no step of the worker is known."""
    return {part: _rounded(mean_part_s(steps, part)) for part in STEP_PARTS} if steps else {}


def _host(host: str, readings: Sequence[events.HostSampled]) -> Json:
    """The latest readings of a machine, and its CPU use over time."""
    last = readings[-1]
    return {
        "host": host,
        "cpu_use": [
            _rounded(sum(reading.cpu_use for reading in group) / len(group))
            for group in buckets(readings, MAX_SENSOR_POINTS)
        ],
        "memory_used_bytes": last.memory_used_bytes,
        "memory_bytes": last.memory_bytes,
        "interfaces": [
            {
                "name": interface["name"],
                "sent_bits_per_s": 8 * interface["sent_bytes"] / last.span_s,
                "received_bits_per_s": 8 * interface["received_bytes"] / last.span_s,
                "nominal_bits_per_s": interface["nominal_bits_per_s"],
            }
            for interface in last.interfaces
        ],
        "gpus": last.gpus,
    }


def _samples(history: RunHistory) -> list[Json]:
    """Translations of the same sentences at several evaluations."""
    groups = buckets(history.evaluations, MAX_SAMPLES)
    return [{"step": group[-1].step, "samples": group[-1].samples} for group in groups]


def _incidents(history: RunHistory) -> list[Json]:
    messages = [(event, message_for(event)) for event in history.incidents[-MAX_INCIDENTS:]]
    return [{"at_s": event.at_s, "text": message.text} for event, message in messages if message is not None]


def _rounded(number: float) -> float | None:
    """Five digits, which is enough for a chart; None for values that are not finite, which JSON does not have."""
    return float(f"{number:.5g}") if math.isfinite(number) else None

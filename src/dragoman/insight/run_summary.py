"""A run as the page shows it: plain JSON, small whatever the length of the run."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from dragoman import events
from dragoman.events import StepDone
from dragoman.insight.answers import answer_all, in_short
from dragoman.insight.diagnoses import exposed_data_s, find_limits
from dragoman.insight.forecast import cost_of, time_left
from dragoman.insight.run_history import LATEST_STEPS, RunHistory, mean_of
from dragoman.telemetry.event_messages import sentence

MOST_POINTS = 800
"""Of a curve: more than a screen has columns for would only cost time."""
MOST_SAMPLES = 12
MOST_INCIDENTS = 200

Json = dict[str, Any]


def digest(story: RunHistory, now_s: float) -> Json:
    """Everything that is shown."""
    left, cost = time_left(story), cost_of(story)
    started = story.started
    return {
        "run": story.name,
        "state": story.state(now_s),
        "step": story.step,
        "total_steps": story.total_steps,
        "elapsed_s": story.elapsed_s,
        "left_s": left.total_s if left is not None and story.ended is None else None,
        "cost": None if cost is None else {"spent": cost.of(story.elapsed_s), "currency": cost.currency},
        "short": in_short(story, now_s),
        "limits": [answer.to_json() for answer in find_limits(story)],
        "answers": [answer.to_json() for answer in answer_all(story)],
        "about": {
            "workers": story.workers,
            "device": started.device,
            "precision": started.precision,
            "parameters": started.parameters,
            "version": started.version,
            "torch": started.torch_version,
        },
        "curves": _curves(story),
        "evaluations": [_evaluation(done) for done in story.evaluations],
        "anatomy": _anatomy(story),
        "workers": _workers(story),
        "hosts": [_host(host, looks) for host, looks in story.sensed.items()],
        "checkpoints": [
            {"step": saved.step, "name": saved.name, "bytes": saved.size_bytes, "stall_s": saved.stall_s}
            for saved in story.checkpoints
        ],
        "samples": _samples(story),
        "incidents": _incidents(story),
    }


def buckets(items: Sequence[Any], most: int = MOST_POINTS) -> list[Sequence[Any]]:
    """At most so many groups of neighbours, of equal size but for the last."""
    size = max(1, math.ceil(len(items) / most))
    return [items[start : start + size] for start in range(0, len(items), size)]


def _curves(story: RunHistory) -> Json:
    """Means over neighbouring steps, where there are many."""
    groups = buckets(story.steps)
    return {
        "step": [group[-1].step for group in groups],
        "train_loss": [_rounded(mean_of(group, "nll")) for group in groups],
        "learning_rate": [_rounded(group[-1].learning_rate) for group in groups],
        "gradient_norm": [_rounded(mean_of(group, "gradient_norm")) for group in groups],
        "tokens_per_s": [
            _rounded(sum(s.source_tokens + s.target_tokens for s in group) / sum(s.step_s for s in group))
            for group in groups
        ],
    }


def _evaluation(done: events.EvaluationDone) -> Json:
    scores = {"loss": done.nll, "bleu": done.bleu, "chrf": done.chrf}
    known = {name: score if score is not None and math.isfinite(score) else None for name, score in scores.items()}
    return {"step": done.step, **known, "took_s": done.evaluation_s}


PARTS: dict[str, Callable[[StepDone], float]] = {
    "computing": lambda step: step.compute_s,
    "the update": lambda step: step.optimizer_s,
    "waiting for data": exposed_data_s,
    "slower workers": lambda step: step.straggler_s,
    "the network": lambda step: step.communication_s - step.straggler_s,
}
"""What a step's time goes into, in the order in which it is stacked."""


def _anatomy(story: RunHistory) -> Json:
    groups = buckets(story.steady, MOST_POINTS // 4)
    return {
        "step": [group[-1].step for group in groups],
        "parts": {
            name: [_rounded(sum(map(part, group)) / len(group)) for group in groups] for name, part in PARTS.items()
        },
        "step_s": [_rounded(mean_of(group, "step_s")) for group in groups],
    }


def _workers(story: RunHistory) -> list[Json]:
    """Each worker's part in the latest steps, and how long it took until it was ready to exchange."""
    if len(story.workers) < 2:
        return []
    met = [step for step in story.steady[-LATEST_STEPS:] if len(step.ready_s) == len(story.workers)]
    return [
        {
            "worker": worker,
            "ready_s": _rounded(sum(step.ready_s[rank] for step in met) / len(met)) if met else None,
            "parts": _mean_parts(story.steps_of.get(int(worker.split()[1]), [])),
        }
        for rank, worker in enumerate(story.workers)
    ]


def _mean_parts(steps: Sequence[StepDone]) -> Json:
    """Seconds of each part; empty where no step of the worker is known."""
    return {name: _rounded(sum(map(part, steps)) / len(steps)) for name, part in PARTS.items()} if steps else {}


def _host(host: str, looks: Sequence[events.HostSampled]) -> Json:
    """The last readings of a machine, and how they went."""
    last, groups = looks[-1], buckets(looks, 60)
    return {
        "host": host,
        "cpu_use": [_rounded(sum(look.cpu_use for look in group) / len(group)) for group in groups],
        "memory_used_bytes": last.memory_used_bytes,
        "memory_bytes": last.memory_bytes,
        "ports": [
            {
                "name": port["name"],
                "sent_bits_per_s": 8 * port["sent_bytes"] / last.span_s,
                "received_bits_per_s": 8 * port["received_bytes"] / last.span_s,
                "nominal_bits_per_s": port["nominal_bits_per_s"],
            }
            for port in last.interfaces
        ],
        "gpus": last.gpus,
    }


def _samples(story: RunHistory) -> list[Json]:
    """Translations of the same sentences as they became better."""
    shown = buckets(story.evaluations, MOST_SAMPLES)
    return [{"step": group[-1].step, "samples": group[-1].samples} for group in shown]


def _incidents(story: RunHistory) -> list[Json]:
    told = [(event, Text.from_markup(sentence(event)).plain) for event in story.incidents[-MOST_INCIDENTS:]]
    return [{"at_s": event.at_s, "text": text} for event, text in told if text]


def _rounded(number: float) -> float | None:
    """Five digits are more than a chart shows. What is not finite has no place on one."""
    return float(f"{number:.5g}") if math.isfinite(number) else None

"""Forecasts of runs on a GPU: sections of `benchmarks.insight`.

Time left: one run alone, with evaluations, checkpoints and a decay of the learning rate. Takes about two minutes.

Final validation loss: five runs that differ in recipe, corpus, size of the batch, schedule and length, none of which
was used to write the forecast. They share the GPU, which changes their speed and not their losses. Takes about three
minutes.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpora import CORPORA, MULTI30K, TATOEBA, split_files
from benchmarks.forked_commands import run_forked, start_forked
from benchmarks.reporting import Figure
from dragoman.events import EvaluationDone, Event, RunEnded, StepDone
from dragoman.insight.loss_forecast import forecast_loss
from dragoman.insight.run_history import build_history
from dragoman.insight.time_and_cost import estimate_remaining_time
from dragoman.run_folder import RunFolder

ETA_RECIPE, ETA_STEPS, ETA_EVALUATE_EVERY = "modern", 2000, 50


@dataclass(frozen=True)
class ForecastRun:
    """A run whose final validation loss is forecast at its half."""

    name: str
    corpus: str
    recipe: str
    steps: int
    settings: tuple[str, ...]


FORECAST_RUNS = (
    ForecastRun("small on Multi30k", MULTI30K, "small", 1200, ("batch.tokens=6000",)),
    ForecastRun("modern on Tatoeba", TATOEBA, "modern", 900, ("batch.tokens=8000",)),
    ForecastRun("transformer-base on Tatoeba", TATOEBA, "transformer-base", 1000, ("batch.tokens=8000",)),
    ForecastRun(
        "small on Tatoeba, cosine", TATOEBA, "small", 1000,
        ("schedule.policy=cosine", "schedule.learning_rate=0.0008", "schedule.warmup_steps=100"),
    ),
    ForecastRun(
        "tiny on Multi30k, linear", MULTI30K, "tiny", 2000,
        ("schedule.policy=linear", "schedule.learning_rate=0.002", "schedule.warmup_steps=150"),
    ),
)  # fmt: skip
EVALUATIONS = 16
"""Of each run, at equal distances."""


def measure_gpu_eta(corpora: Path = CORPORA) -> Iterator[Figure]:
    """Estimated time left, early in a run, against the time that the rest took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _prepare(folder, MULTI30K, corpora)
        settings = (f"training.steps={ETA_STEPS}", f"evaluation.every={ETA_EVALUATE_EVERY}")
        run_forked(folder / "log", "train", ETA_RECIPE, "--data", data, "--out", folder / "run", *settings)
        events = RunFolder(folder / "run").events()
    yield from judge_remaining_time(events, ETA_STEPS)


def judge_remaining_time(events: Sequence[Event], steps: int) -> Iterator[Figure]:
    """Compare the time left that was estimated early in a finished run with the time that the rest took."""
    ended_at_s = next(event.at_s for event in events if isinstance(event, RunEnded))
    for part, target in ((0.05, "10 %"), (0.2, "5 %")):
        known = events_up_to(events, round(part * steps))
        left = estimate_remaining_time(build_history(known))
        assert left is not None
        took_s = ended_at_s - known[-1].at_s
        error = left.total_s / took_s - 1
        text = f"{error:+.1%} ({left.total_s:.1f} s, then {took_s:.1f} s)"
        yield Figure(f"estimated time left, at {part:.0%} of a run", text, target, error)


def events_up_to(events: Sequence[Event], step: int) -> list[Event]:
    """What was known before the step after this one: the evaluation and the checkpoint of this step are."""
    later = next(n for n, event in enumerate(events) if isinstance(event, StepDone) and event.step > step)
    return list(events[:later])


def measure_gpu_forecasts(corpora: Path = CORPORA) -> Iterator[Figure]:
    """The forecast of the final loss at half of each run, and whether the loss came to lie in its interval."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = []
        for index, run in enumerate(FORECAST_RUNS):
            data = _prepare(folder, run.corpus, corpora)
            every = f"evaluation.every={run.steps // EVALUATIONS}"
            words = ("train", run.recipe, "--data", data, "--out", folder / f"run-{index}")
            settings = (f"training.steps={run.steps}", every, "evaluation.bleu=false", *run.settings)
            commands.append(start_forked(folder / f"log-{index}", *words, *settings))
        for command in commands:
            command.wait()
        inside = 0
        for index, run in enumerate(FORECAST_RUNS):
            figure = judge_forecast(run.name, RunFolder(folder / f"run-{index}").events(), run.steps)
            inside += figure.value
            yield figure
    total = len(FORECAST_RUNS)
    yield Figure("final losses within the forecast interval", f"{inside} of {total}", "at least 4 of 5", inside)


def judge_forecast(name: str, events: Sequence[Event], steps: int) -> Figure:
    """Compare the forecast made at half of a run with the last validation loss."""
    final = [event.nll for event in events if isinstance(event, EvaluationDone)][-1]
    forecast = forecast_loss(build_history(events_up_to(events, steps // 2)), steps)
    is_inside = forecast.low <= final <= forecast.high
    interval = f"{forecast.value:.3f} ({forecast.low:.3f} to {forecast.high:.3f})"
    return Figure(f"forecast of {name}", f"{interval}, then {final:.3f}", "inside the interval", is_inside)


def _prepare(folder: Path, corpus: str, corpora: Path) -> Path:
    """A data set with validation pairs that are held out from the corpus."""
    out = folder / corpus
    if not out.exists():
        words = ("prepare", *split_files(corpus, "train", corpora), "--recipe", "small", "--out", out)
        run_forked(folder / "prepare.log", *words)
    return out

"""Metrics of runs for Prometheus, from their events."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.insight.gpu_readings import used_gpus
from dragoman.insight.run_history import RunHistory
from dragoman.insight.time_and_cost import estimate_remaining_time, find_hourly_cost
from dragoman.telemetry.remaining_time import RECENT_STEPS

Sample = tuple[tuple[str, ...], float]
"""Values of the labels after `run`, and the value."""


def render_metrics(histories: Mapping[str, RunHistory], now_s: float) -> bytes:
    """The metrics of runs, by their names, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_RunCollector(histories, now_s))
    return generate_latest(registry)


class _RunCollector(Collector):
    def __init__(self, histories: Mapping[str, RunHistory], now_s: float) -> None:
        self._histories, self._now_s = histories, now_s

    def describe(self) -> Iterable[Metric]:
        return ()  # Names are not checked against those of other collectors: there are none.

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for run, history in self._histories.items():
            for name, about, labels, samples in self._describe(history):
                kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                family = families.setdefault(name, kind(f"dragoman_run_{name}", about, labels=["run", *labels]))
                for values, value in samples:
                    family.add_metric([run, *values], value)  # type: ignore[attr-defined]
        yield from families.values()

    def _describe(self, history: RunHistory) -> Iterator[tuple[str, str, list[str], list[Sample]]]:
        """Name, meaning, labels and samples of each metric that is known."""
        for name, about, value in (*_progress(history), *_quality(history)):
            yield name, about, [], [((), value)]
        state = history.state(self._now_s)
        yield "state", "1 for the state of the run.", ["state"], [((state,), 1.0)]
        cost = find_hourly_cost(history)
        if cost is not None:
            amount = cost.amount(history.elapsed_s)
            yield "cost", "Cost of the machines so far.", ["currency"], [((cost.currency,), amount)]
        latest = {host: readings[-1] for host, readings in history.host_readings.items() if readings}
        cpus: list[Sample] = [((host,), reading.cpu_use) for host, reading in latest.items()]
        yield "cpu_utilisation_ratio", "Use of all cores of a machine, from 0 to 1.", ["host"], cpus
        gpus: list[Sample] = [
            ((host, str(gpu["index"])), gpu["use"])
            for host, reading in latest.items()
            for gpu in used_gpus([reading])
            if gpu["use"] is not None  # Some devices do not tell.
        ]
        yield "gpu_utilisation_ratio", "Time in which a GPU was busy, from 0 to 1.", ["host", "gpu"], gpus


def _progress(history: RunHistory) -> Iterator[tuple[str, str, float]]:
    yield "steps_total", "Steps of the run, each counted once.", history.step
    yield "planned_steps", "Steps at the end of the run.", history.total_steps
    tokens = sum(span.source_tokens + span.target_tokens for span in history.spans)
    yield "tokens_total", "Source and target tokens of all steps.", tokens
    recent = history.steps[-RECENT_STEPS:]
    if recent:
        tokens = sum(done.source_tokens + done.target_tokens for done in recent)
        yield "tokens_per_second", "Over the latest steps.", tokens / max(1e-9, sum(done.step_s for done in recent))
    yield "elapsed_seconds", "Time of all sessions of the run.", history.elapsed_s
    remaining = estimate_remaining_time(history) if history.ended is None else None
    if remaining is not None:
        yield "remaining_seconds", "Estimated time to the end of the run.", remaining.total_s
    yield "workers", "Workers of the run.", len(history.workers)
    yield "restarts_total", "Sessions after the first: resumes and restarts.", len(history.sessions) - 1
    yield "lost_workers_total", "Workers that were lost.", len(history.losses)


def _quality(history: RunHistory) -> Iterator[tuple[str, str, float]]:
    if history.steps:
        yield "loss", "Training loss of the last step, without label smoothing.", history.steps[-1].nll
        yield "learning_rate", "Of the last step.", history.steps[-1].learning_rate
    if history.evaluations:
        last = history.evaluations[-1]
        yield "validation_loss", "Of the last evaluation, without label smoothing.", last.nll
        if last.bleu is not None:
            yield "validation_bleu", "BLEU of the last evaluation, from 0 to 100.", last.bleu

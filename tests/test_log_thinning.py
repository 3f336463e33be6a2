"""Thinned logs: the same report whenever a log was thinned, and if it never was."""

import json
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman import events, log_thinning
from dragoman.events import Event, HostSampled, RunStarted, StepDone, StepsSummed
from dragoman.insight.run_history import _build_history, build_history
from dragoman.insight.run_summary import summarize
from dragoman.log_lines import LogLine, line_of, parse_line
from dragoman.log_thinning import thin

from .insight.synthetic_runs import checkpoint, evaluation, host_sample, synthetic_run

STARTED = next(event for event in synthetic_run(1) if isinstance(event, RunStarted))
DONE = next(event for event in synthetic_run(1) if isinstance(event, StepDone))
EVALUATE_EVERY, SAVE_EVERY = 90, 70
"""More than the steps that are never summed: a resumed run goes back to before them."""
SETTINGS = {
    **STARTED.settings,
    "evaluation": {**STARTED.settings["evaluation"], "every": EVALUATE_EVERY},
    "checkpoint": {**STARTED.settings["checkpoint"], "every": SAVE_EVERY},
}


@contextmanager
def short_past():
    """Thin logs of a few hundred steps as those of long runs."""
    limits = {"WHOLE_STEPS": 32, "MAX_SPANS": 32, "NEAR_STEPS": 6, "WHOLE_READINGS": 8, "MAX_READINGS": 8}
    with patch.multiple(log_thinning, **limits):
        yield


class RecordedRun:
    """The logs of a run's workers, as they were written."""

    def __init__(self, workers: int) -> None:
        self.logs: list[list[Event]] = [[] for _ in range(workers)]
        self.present = list(range(workers))
        self.now_s, self.step, self.checkpoint = 1.7e9, 0, 0
        self.start()

    def record(self, event: Event, only: int | None = None) -> None:
        for worker in self.present if only is None else [only]:
            self.now_s += 0.001
            self.logs[worker].append(replace(event, worker=worker, at_s=self.now_s))

    def start(self) -> None:
        self.step = self.checkpoint
        names = [f"worker {worker} on host" for worker in self.present]
        started = replace(
            STARTED, settings=SETTINGS, workers=names, world_size=len(names), resumed_step=self.step, total_steps=5000,
            session_at_s=self.now_s,
        )  # fmt: skip
        self.record(started)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            step_s = 0.5 + (self.step * 7919 % 101) / 300
            ready_s = [step_s * 0.9 + 0.001 * worker for worker in self.present]
            done = replace(
                DONE, step=self.step, nll=9 / (1 + self.step) ** 0.3 + step_s / 10, step_s=step_s, data_s=step_s / 7,
                learning_rate=1e-3 * min(1, self.step / 100) * (1 - self.step / 5000), compute_s=step_s / 2,
                ready_s=ready_s if len(ready_s) > 1 else [], worker_gradient_norm_sq=float(self.step % 3),
            )  # fmt: skip
            self.now_s += step_s
            self.record(done)
            if self.step % 3 == 0:
                self.record(host_sample("host", 0, use=self.step % 17 / 17), only=self.present[0])
            if self.step % EVALUATE_EVERY == 0:
                self.record(evaluation(self.step, 9 / self.step**0.3, 20.0, 0.0))
            if self.step % EVALUATE_EVERY == 0 or self.step % SAVE_EVERY == 0:
                self.checkpoint = self.step
                self.record(checkpoint(self.step, 0.01, 0.0), only=self.present[-1])

    def resume(self) -> None:
        self.now_s += 100
        self.start()

    def roll_back(self) -> None:
        rolled_back = events.RolledBack(from_step=self.step, to_step=self.checkpoint, learning_rate_factor=0.5)
        self.step = self.checkpoint
        self.record(rolled_back)

    def lose_one(self, steps_back: int) -> None:
        """An elastic world goes on without a worker, from its last synchronisation."""
        if len(self.present) > 1:
            gone = self.present.pop()
            self.record(events.WorkersLost(step=self.step, workers=[f"worker {gone} on host"], reason="gone"))
            self.step -= min(steps_back, self.step - self.checkpoint)
            names = [f"worker {worker} on host" for worker in self.present]
            self.record(events.WorldChanged(step=self.step, workers=names))

    def skip(self) -> None:
        self.step += 1
        self.record(events.StepSkipped(step=self.step, loss=1.0, gradient_norm=1.0, consecutive=1))


ACTIONS = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 120)),
    st.tuples(st.just("resume")),
    st.tuples(st.just("roll_back")),
    st.tuples(st.just("lose_one"), st.integers(0, 25)),
    st.tuples(st.just("skip")),
)
RUNS = st.tuples(st.integers(1, 3), st.lists(ACTIONS, min_size=2, max_size=12))


def record_run(workers: int, actions: Sequence[tuple]) -> RecordedRun:
    run = RecordedRun(workers)
    run.train(100)
    for name, *arguments in actions:
        getattr(run, name)(*arguments)
    run.train(200)
    return run


def written(lines: Sequence[LogLine]) -> list[LogLine]:
    """Lines as they are read from a file."""
    return [parse_line(line.text) for line in lines]


def summary_of(logs: Sequence[Sequence[LogLine]]) -> str:
    return json.dumps(summarize(_build_history([thin(log) for log in logs]), now_s=2e9))


@given(RUNS, st.lists(st.floats(0, 1), min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_report_does_not_depend_on_when_the_log_was_thinned(run, moments):
    recorded = record_run(*run)
    with short_past():
        full = [[line_of(event) for event in log] for log in recorded.logs]
        thinned = []
        for log in full:
            kept: list[LogLine] = []
            ends = sorted({round(moment * len(log)) for moment in moments})
            for start, end in zip([0, *ends], [*ends, len(log)], strict=True):
                kept = written(thin(kept)) + log[start:end]
            thinned.append(kept)
        assert min(map(len, thinned)) <= min(map(len, full))
        assert summary_of(thinned) == summary_of(full)
        for log, kept in zip(full, thinned, strict=True):
            assert [line.text for line in thin(kept)] == [line.text for line in thin(log)]


@given(RUNS)
@example((2, [("train", 57), ("lose_one", 10)]))
@example((2, [("train", 105), ("resume",), ("train", 69), ("resume",)]))
@settings(max_examples=15)
def test_every_step_counts_once_as_it_was_last_taken(run):
    recorded = record_run(*run)
    with short_past():
        history = build_history([event for log in recorded.logs for event in log])
    taken: dict[int, StepDone] = {}
    for event in recorded.logs[0]:
        match event:
            case StepDone():
                taken[event.step] = event
            case RunStarted(resumed_step=back) | events.RolledBack(to_step=back):
                taken = {step: done for step, done in taken.items() if step <= back}
    assert history.known_steps == len(taken)
    assert [span.step for span in history.spans] == sorted(span.step for span in history.spans)
    nll = sum(event.nll for event in taken.values())
    assert abs(sum(span.nll for span in history.spans) - nll) < 1e-9 * nll
    assert sum(span.sent_bytes for span in history.spans) == sum(event.sent_bytes for event in taken.values())


@given(RUNS)
@settings(max_examples=15)
def test_the_latest_steps_and_those_around_incidents_stay(run):
    log = record_run(*run).logs[0]
    with short_past():
        kept = [line.event for line in thin([line_of(event) for event in log])]
    incidents = (RunStarted, events.StepSkipped, events.RolledBack, events.WorkersLost)
    near = [
        event
        for place, event in enumerate(log)
        if isinstance(event, StepDone) and any(isinstance(other, incidents) for other in log[place - 3 : place + 4])
    ]
    singles = [event for event in kept if isinstance(event, StepDone)]
    done = [event for event in log if isinstance(event, StepDone)]
    assert singles[-32:] == done[-32:]
    assert [event for event in near if event not in singles] == []
    assert any(isinstance(event, StepsSummed) for event in kept)
    others = (StepDone, StepsSummed, HostSampled)
    assert [event for event in kept if not isinstance(event, others)] == [
        event for event in log if not isinstance(event, others)
    ]


def test_the_size_of_a_log_is_bounded():
    run = RecordedRun(1)
    sizes = []
    lines: list[LogLine] = []
    with short_past():
        for _ in range(12):
            run.logs[0].clear()
            run.train(500)
            lines = thin([*lines, *map(line_of, run.logs[0])])
            steps = [line for line in lines if isinstance(line.event, StepDone | StepsSummed)]
            borders = run.step // EVALUATE_EVERY + run.step // SAVE_EVERY
            assert len(steps) <= 2 * 32 + 32 + borders
            sizes.append(sum(isinstance(line.event, HostSampled) for line in lines))
    assert max(sizes) <= 2 * 8 + 8


def test_readings_of_the_past_stand_for_those_that_were_dropped():
    readings = [host_sample("a", step, use=step / 1000) for step in range(1000)]
    with short_past():
        history = build_history([*synthetic_run(20), *readings])
    kept = history.host_readings["a"]
    assert len(kept) == 1000
    assert kept[-8:] == readings[-8:]
    uses = [reading.gpus[0]["use"] for reading in kept]
    assert abs(sum(uses) / len(uses) - 0.5) < 0.1


def test_a_short_log_stays_as_it_is():
    log = [line_of(event) for event in synthetic_run(3000)]
    assert thin(log) == log


def test_damaged_lines_and_events_of_newer_versions_stay():
    run = RecordedRun(1)
    run.train(400)
    lines = [line_of(event).text for event in run.logs[0]]
    foreign = b'{"event":"from_the_future","at_s":1.0,"worker":0,"step":3}'
    damaged = lines[50][:60] + b"}"
    with short_past():
        kept = [line.text for line in thin(list(map(parse_line, [*lines[:50], foreign, damaged, *lines[50:]])))]
    assert foreign in kept
    assert damaged in kept
    assert len(kept) < len(lines)

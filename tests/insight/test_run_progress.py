"""The folder of any machine shows the whole run, whoever joined, was lost or took over."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.events import WorkerFailed
from dragoman.files import write_json
from dragoman.insight.run_progress import describe_progress

from .simulated_run import Fact, SimulatedRun
from .synthetic_runs import synthetic_run, write_run

PLACEMENTS = (("a", "b", "c"), ("a", "a", "b"), ("a", "b", "b", "c"))
WORKERS = st.sets(st.integers(0, 3))
BREAKS = st.none() | st.integers(0, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("steps"), st.integers(1, 8)),
    st.tuples(st.just("exchange")),
    st.tuples(st.just("roll back")),
    st.tuples(st.just("lose"), WORKERS, WORKERS, BREAKS, WORKERS),
    st.tuples(st.just("join"), WORKERS, BREAKS, WORKERS),
)


def act(run: SimulatedRun, action: tuple) -> None:
    match action:
        case ("lose", lost, namers, breaks_at, unharmed):
            run.lose(lost, namers, breaks_at, unharmed)
        case ("join", workers, breaks_at, unharmed):
            present = [number for number in sorted(workers) if number < len(run.placement)]
            run.join(*present, breaks_at=breaks_at, unharmed=unharmed)
        case ("steps", steps) if run.live:
            run.take_steps(steps)
        case ("exchange",) if run.live:
            run.exchange_events()
        case ("roll back",) if run.live:
            run.roll_back()


def replay(facts: set[Fact]) -> tuple[list[int], list[tuple[str, int]]]:
    """Steps of the evaluations that count, and the lost workers with their last steps."""
    evaluated: set[int] = set()
    for fact in sorted(facts):
        if fact.kind == "evaluated":
            evaluated.add(fact.step)
        elif fact.kind == "went back":
            evaluated = {step for step in evaluated if step <= fact.step}
    return sorted(evaluated), [(fact.worker, fact.step) for fact in sorted(facts) if fact.kind == "lost"]


@given(
    st.sampled_from(PLACEMENTS), st.lists(st.floats(-0.4, 0.4), min_size=3, max_size=3), st.lists(ACTIONS, max_size=12)
)
@settings(max_examples=40)
def test_all_surviving_folders_show_the_same_complete_run(placement, clock_offsets_s, actions):
    with tempfile.TemporaryDirectory() as folder:
        run = SimulatedRun(Path(folder), placement, clock_offsets_s)
        for action in actions:
            act(run, action)
        run.join(0)  # At least one worker is there at the end.
        run.end()
        shown = {host: describe_progress(run.folders[host].path) for host in run.hosts}
    first = shown[run.hosts[0]]
    assert all(facts == first for facts in shown.values())
    evaluated, lost = replay(run.knowledge[run.hosts[0]])
    assert [done["step"] for done in first["evaluations"]] == evaluated
    assert [(loss["worker"], loss["step"]) for loss in first["lost"]] == lost
    assert (first["ended"], first["step"]) == ("finished", run.step)
    assert first["workers"] == run.names(run.live)
    if len(first["started"]) == 1:
        assert first["started"][0] + first["elapsed_s"] == pytest.approx(run.seconds)


def test_a_run_that_has_not_started_can_be_described(tmp_path):
    write_run(tmp_path / "run", [])
    write_json(tmp_path / "run" / "config.json", {"settings": {"training": {"steps": 50}}})
    shown = describe_progress(tmp_path / "run")
    assert (shown["state"], shown["step"], shown["steps"]) == ("not started", 0, 50)


def test_a_run_that_ended_by_an_error_shows_it(tmp_path):
    recorded = synthetic_run(20, ended=None)
    failure = WorkerFailed(at_s=recorded[-1].at_s + 1, worker=1, step=20, error="ValueError: no such pair")
    shown = describe_progress(write_run(tmp_path / "run", [*recorded, failure]))
    assert (shown["state"], shown["ended"], shown["error"]) == ("failed", None, "ValueError: no such pair")

from dataclasses import replace

import pytest

from dragoman import event_log, events, log_thinning
from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import StepDone, StepsSummed
from dragoman.insight.run_history import RunLogReader, build_history, read_history
from dragoman.run_folder import RunFolder

from .synthetic_runs import synthetic_run, write_run


def test_a_resumed_run_has_one_history():
    first = synthetic_run(100, total_steps=200, ended=None)
    second = synthetic_run(160, total_steps=200, start_at_s=1.7e9 + 9000)
    resumed = [replace(event, resumed_step=80) if isinstance(event, events.RunStarted) else event for event in second]
    repeated = [event for event in resumed if not isinstance(event, StepDone) or event.step > 80]
    history = build_history([*first, *repeated])
    assert [step.step for step in history.steps] == list(range(1, 161))
    assert len(history.sessions) == 2
    assert history.elapsed_s < 400, "the time between sessions does not count"


def test_steps_after_a_rollback_count_once():
    recorded = synthetic_run(100, ended=None)
    last_s = recorded[-1].at_s
    rollback = events.RolledBack(at_s=last_s + 1, from_step=100, to_step=60, learning_rate_factor=0.5)
    assert build_history([*recorded, rollback]).step == 60


def test_the_first_steps_of_a_session_are_not_steady():
    history = build_history(synthetic_run(50))
    assert (history.steps[0].step, history.steady_steps[0].step) == (1, 6)


def test_a_checkpoint_that_two_workers_saved_counts_once():
    recorded = synthetic_run(200)
    twice = [*recorded, *(event for event in recorded if isinstance(event, events.CheckpointSaved))]
    assert build_history(twice).checkpoints == build_history(recorded).checkpoints


def test_a_batch_split_of_any_worker_is_an_incident():
    split = events.MicroBatchesSplit(worker=1, step=9, micro_batches=2, reason="memory", at_s=1.7e9 + 9)
    assert build_history([*synthetic_run(20), split]).incidents_of(events.MicroBatchesSplit) == [split]


def test_a_killed_run_is_not_responding():
    history = build_history(synthetic_run(50, total_steps=100, ended=None))
    last_s = history.session_spans_s[-1][1]
    assert history.state(last_s + 5) == "running"
    assert history.state(last_s + 1000) == "not responding"


def test_a_run_that_ran_out_of_patience_stopped_early():
    assert build_history(synthetic_run(50, ended="patience")).state(0) == "stopped early"


def test_a_folder_without_a_run_is_an_error(tmp_path):
    with pytest.raises(
        DragomanError, match="is not the run folder that `dragoman train` got with --out: check the path"
    ):
        read_history(tmp_path)


def test_a_run_without_events_is_an_error(tmp_path):
    with pytest.raises(DragomanError, match="has not started training"):
        read_history(write_run(tmp_path / "run", []))


def test_a_reader_follows_a_log_that_is_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "THIN_AFTER_BYTES", 20_000)
    monkeypatch.setattr(log_thinning, "WHOLE_STEPS", 16)
    monkeypatch.setattr(log_thinning, "MAX_SPANS", 64)
    recorded = synthetic_run(600, evaluate_every=100, ended=None)
    folder = write_run(tmp_path / "run", recorded[:50])
    reader, log = RunLogReader(folder), EventLog(RunFolder(folder).events_of(0))
    known = 50
    for end in range(100, len(recorded) + 50, 50):
        for event in recorded[known:end]:
            log.record(event)
        known = end
        assert reader.read_new()
        history = reader.history()
        assert history.known_steps == history.step
        assert history == build_history(recorded[:end])
    log.close()
    assert any(isinstance(event, StepsSummed) for event in RunFolder(folder).events())
    assert [step.step for step in history.steps] == list(range(history.steps[0].step, 601))


def test_a_worker_that_joins_does_not_start_a_session():
    recorded = synthetic_run(50, total_steps=50)
    started = next(event for event in recorded if isinstance(event, events.RunStarted))
    first = replace(started, session_at_s=started.at_s)
    joined = replace(first, worker=1, host="b", at_s=started.at_s + 30.5, resumed_step=30)
    history = build_history([joined, *(first if event is started else event for event in recorded)])
    assert history.sessions == [first]
    assert [step.step for step in history.steps] == list(range(1, 51))


def test_what_all_workers_record_counts_once():
    skips = [
        events.StepSkipped(at_s=1.7e9 + step + 0.1 * worker, worker=worker, step=step, loss=1.0, gradient_norm=1.0,
                           consecutive=1)
        for step in (10, 20) for worker in (0, 1)
    ]  # fmt: skip
    assert [event.step for event in build_history([*synthetic_run(30), *skips]).incidents_of(events.StepSkipped)] == [
        10,
        20,
    ]


def test_steps_of_other_workers_fill_the_absence_of_this_machine():
    recorded = synthetic_run(50)
    here = [event for event in recorded if not isinstance(event, StepDone) or not 20 <= event.step < 30]
    other = [replace(event, worker=1) for event in recorded if isinstance(event, StepDone) and event.step % 4 == 0]
    history = build_history([*here, *other])
    assert [step.step for step in history.steps if 18 < step.step < 31] == [19, 20, 24, 28, 30]
    assert {step.worker for step in history.steps if not 20 <= step.step < 30} == {0}


def test_an_error_of_a_worker_is_not_the_end_if_the_others_continue():
    failed = events.WorkerFailed(at_s=1.7e9 + 10.5, worker=1, step=10, error="ValueError: no")
    continued = build_history([*synthetic_run(20, ended=None), failed])
    assert continued.failed is None
    assert continued.incidents_of(events.WorkerFailed) == [failed]

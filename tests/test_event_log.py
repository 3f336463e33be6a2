import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import event_log, log_thinning
from dragoman.event_log import EventLog, read_events
from dragoman.events import StepDone, StepSkipped, StepsSummed

from .insight.synthetic_runs import synthetic_run

DONE = next(event for event in synthetic_run(1) if isinstance(event, StepDone))
WRITER = """
import sys
from pathlib import Path
from dragoman import event_log, log_thinning
from dragoman.event_log import EventLog
from dragoman.events import StepDone

event_log.THIN_AFTER_BYTES, log_thinning.WHOLE_STEPS, log_thinning.MAX_SPANS = 10_000, 16, 16
log = EventLog(Path(sys.argv[1]))
assert log.lock()
for step in range(int(sys.argv[2]), 100_000):
    log.record(StepDone(step=step, epoch=0, batch=0, loss=1.0, nll=1.0, gradient_norm=1.0, learning_rate=1.0,
                        source_tokens=1, target_tokens=1, pairs=1, step_s=1.0, micro_batches=1))
    print(step, flush=True)
"""
"""Records steps from a given one on, and prints each as soon as it is recorded."""


def step(number: int) -> StepSkipped:
    return StepSkipped(step=number, loss=0.0, gradient_norm=0.0, consecutive=0)


def test_events_are_readable_while_written(tmp_path):
    log = EventLog(tmp_path / "events-0.jsonl")
    log.record(step(1))
    seen, offset = read_events(tmp_path / "events-0.jsonl")
    log.record(step(2))
    more, _ = read_events(tmp_path / "events-0.jsonl", offset)
    assert [event.step for event in (*seen, *more)] == [1, 2]


def test_only_one_process_can_claim_a_log(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "LOCK_TIMEOUT_S", 0.2)
    first, second = (EventLog(tmp_path / "events-0.jsonl") for _ in range(2))
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock()


@given(st.integers(0, 400))
def test_a_writer_killed_at_any_byte_loses_at_most_its_last_line(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("log") / "events-0.jsonl"
    first = EventLog(path)
    first.record(step(1))
    first.record(step(2))
    whole = path.read_bytes()
    with path.open("rb+") as file:
        file.truncate(min(cut, len(whole)))
    EventLog(path).record(step(3))
    steps = [event.step for event in read_events(path)[0]]
    assert steps == [*range(1, 1 + whole[:cut].count(b"\n")), 3]


def test_a_full_disk_loses_complete_lines_and_raises_nothing(tmp_path):
    path = tmp_path / "events-0.jsonl"
    log = EventLog(path)
    log.record(step(1))
    room = path.stat().st_size + 10
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))  # Files may not grow further, as on a full disk.
    try:
        log.record(step(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.record(step(3))
    assert [event.step for event in read_events(path)[0]] == [1, 3]
    assert path.read_bytes().count(b"\n") == 2


@pytest.fixture
def thin_often(monkeypatch):
    """Thin logs of some kilobytes as those of long runs."""
    monkeypatch.setattr(event_log, "THIN_AFTER_BYTES", 10_000)
    monkeypatch.setattr(log_thinning, "WHOLE_STEPS", 16)
    monkeypatch.setattr(log_thinning, "MAX_SPANS", 16)


def known_steps(path: Path) -> list[int]:
    """All steps of a log. Those of a sum are taken to be without gaps."""
    found: list[int] = []
    for event in read_events(path)[0]:
        if isinstance(event, StepsSummed):
            assert event.step - event.first_step + 1 == event.steps
            found += range(event.first_step, event.step + 1)
        elif isinstance(event, StepDone):
            found.append(event.step)
    return found


def test_a_long_log_is_thinned_while_it_is_written(tmp_path, thin_often):
    path = tmp_path / "events-0.jsonl"
    log = EventLog(path)
    assert log.lock()
    for number in range(1, 2001):
        log.record(replace(DONE, step=number, at_s=float(number)))
    log.close()
    assert known_steps(path) == list(range(1, 2001))
    assert path.stat().st_size < 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_thinned_log_is_still_locked(tmp_path, thin_often, monkeypatch):
    monkeypatch.setattr(event_log, "LOCK_TIMEOUT_S", 0.2)
    path = tmp_path / "events-0.jsonl"
    log, early = EventLog(path), EventLog(path)
    assert log.lock()
    before = path.stat().st_ino
    number = 0
    while path.stat().st_ino == before:
        number += 1
        log.record(replace(DONE, step=number, at_s=float(number)))
    assert not early.lock(), "of the file that was replaced"
    assert not EventLog(path).lock()
    log.close()
    assert EventLog(path).lock()


def test_what_others_append_to_a_log_is_in_the_thinned_one(tmp_path, thin_often):
    path = tmp_path / "events-0.jsonl"
    log, other = EventLog(path), EventLog(path)
    assert log.lock()
    finished = threading.Event()

    def append() -> None:
        number = 0
        while not finished.is_set():
            number += 1
            other.record(step(number))
        other.record(step(number + 1))

    thread = threading.Thread(target=append)
    thread.start()
    for number in range(1, 3001):
        log.record(replace(DONE, step=number, at_s=float(number)))
    finished.set()
    thread.join()
    log.close()
    assert known_steps(path) == list(range(1, 3001))
    skipped = [event.step for event in read_events(path)[0] if isinstance(event, StepSkipped)]
    assert set(skipped) == set(range(1, max(skipped) + 1))


def test_a_writer_killed_while_it_thins_loses_and_repeats_nothing(tmp_path):
    path, random = tmp_path / "events-0.jsonl", Random(0)
    first = 1
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            last = first + random.randrange(1000, 6000)
            recorded = next(int(line) for line in writer.stdout if int(line) == last)
            writer.send_signal(signal.SIGKILL)
            recorded = max([recorded, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        EventLog(path).close()  # Drops an incomplete line.
        steps = known_steps(path)
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) in (recorded, recorded + 1), "the last one may not have been printed"
        first = len(steps) + 1
    assert any(isinstance(event, StepsSummed) for event in read_events(path)[0])

import resource

from hypothesis import given
from hypothesis import strategies as st

from dragoman import event_log
from dragoman.event_log import EventLog, read_events
from dragoman.events import StepSkipped


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
    monkeypatch.setattr(event_log, "LEAVING_S", 0.2)
    first, second = (EventLog(tmp_path / "events-0.jsonl") for _ in range(2))
    assert first.claim()
    assert not second.claim()
    first.close()
    assert second.claim()


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

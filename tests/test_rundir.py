import dataclasses
import json
import math
import resource
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import event_log, events
from dragoman.errors import DragomanError
from dragoman.event_log import EventLog, read_events
from dragoman.events import StepSkipped, from_json, to_json
from dragoman.files import publish_folder, read_json, replacing, sweep, write_atomic

VALUES = {
    int: st.integers(-(2**40), 2**40),
    float: st.floats(allow_nan=False),
    str: st.text(),
}


def values_for(annotation: object) -> st.SearchStrategy:
    if annotation in VALUES:
        return VALUES[annotation]
    options = typing.get_args(annotation)
    if type(None) in options:
        return st.none() | values_for(options[0])
    return st.just([]) if typing.get_origin(annotation) is list else st.just({})


@st.composite
def any_event(draw):
    kind = draw(st.sampled_from(sorted(events.KINDS.values(), key=lambda kind: kind.__name__)))
    return kind(**{field.name: draw(values_for(field.type)) for field in dataclasses.fields(kind)})


@given(any_event())
def test_every_event_survives_its_line(event):
    line = to_json(event)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert from_json(line) == event


def test_a_loss_that_is_not_a_number_can_be_recorded():
    event = from_json(to_json(StepSkipped(step=3, loss=math.nan, gradient_norm=math.inf, consecutive=1)))
    assert isinstance(event, StepSkipped)
    assert math.isnan(event.loss)
    assert event.gradient_norm == math.inf


@given(st.binary())
def test_a_damaged_line_is_passed_over(line):
    assert from_json(line) is None


def step(number: int) -> StepSkipped:
    return StepSkipped(step=number, loss=0.0, gradient_norm=0.0, in_a_row=0)


def test_events_are_readable_while_written(tmp_path):
    log = EventLog(tmp_path / "events-0.jsonl")
    log.record(step(1))
    seen, offset = read_events(tmp_path / "events-0.jsonl")
    log.record(step(2))
    more, _ = read_events(tmp_path / "events-0.jsonl", offset)
    assert [event.step for event in (*seen, *more)] == [1, 2]


def test_a_log_is_claimed_by_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "LEAVING_S", 0.2)
    first, second = (EventLog(tmp_path / "events-0.jsonl") for _ in range(2))
    assert first.claim()
    assert not second.claim()
    first.close()
    assert second.claim()


@given(st.integers(0, 400))
def test_a_writer_killed_at_any_byte_costs_at_most_its_last_line(tmp_path_factory, cut):
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


def test_a_full_disk_costs_whole_lines_and_no_run(tmp_path):
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


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "file.json"
    write_atomic(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_folder_is_published_whole_in_place_of_an_earlier_one(tmp_path):
    for content in ("first", "second"):
        (tmp_path / "new" / "sub").mkdir(parents=True)
        (tmp_path / "new" / "sub" / "file").write_text(content)
        publish_folder(tmp_path / "new", tmp_path / "final")
        assert (tmp_path / "final" / "sub" / "file").read_text() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["final"]


def test_what_killed_writers_left_is_swept_away_and_nothing_else(tmp_path):
    (tmp_path / "kept" / ".draft").mkdir(parents=True)
    (tmp_path / "kept" / ".draft" / "part").write_text("x")
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / ".file.tmp").write_text("x")
    (tmp_path / "kept" / ".link").symlink_to("file")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]


def test_damaged_json_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(DragomanError, match=r"x.json is not valid JSON"):
        read_json(tmp_path / "x.json")

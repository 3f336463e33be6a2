from collections.abc import Callable, Iterator

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dragoman.event_log import EventLog
from dragoman.events import CheckpointFailed, CheckpointSaved, Event, HostSampled, RunEnded, WorkerFailed
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription
from dragoman.run_folder import RunFolder
from dragoman.training import event_recorder
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.replica import build_replica

from ..distributed.fake_cluster import FakeCluster
from ..insight.synthetic_runs import evaluation, host_sample
from ..small import tiny

WORKER = 3
ENDED = RunEnded(step=1, reason="finished", elapsed_s=1.0)


class FakeSink:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False

    def record(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


class FakeSensors:
    """Record one sample when closed, as real sensors do."""

    def __init__(self, host: str, record: Callable[[Event], object]) -> None:
        self._record = record

    def close(self) -> None:
        self._record(host_sample("a", 1))


class Recorded:
    """A recorder of worker 3, with its log and one sink."""

    def __init__(self, folder) -> None:
        self.run = RunFolder(folder)
        self.cluster = FakeCluster(WORKER)
        self.sink = FakeSink()
        self.opened = 0
        log = EventLog(self.run.events_of(WORKER))
        self.recorder = EventRecorder(self.run, log, self.cluster, self.open_sinks, tiny())

    def open_sinks(self) -> list[FakeSink]:
        self.opened += 1
        return [self.sink]

    @property
    def logged(self) -> list[Event]:
        return self.run.events(WORKER)


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Iterator[Recorded]:
    monkeypatch.setattr(event_recorder, "Sensors", FakeSensors)
    recorded = Recorded(tmp_path)
    yield recorded
    recorded.recorder.close()
    recorded.cluster.close()


def test_every_event_has_the_number_of_its_worker(recorded):
    recorded.recorder.record(ENDED)
    assert [event.worker for event in recorded.logged] == [WORKER, WORKER]
    assert [event.worker for event in recorded.sink.events] == [WORKER]


def test_checkpoint_events_have_the_number_of_their_worker(recorded, data, tmp_path, monkeypatch):
    settings = tiny()
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    description = ModelDescription(architecture, data.languages, settings.decoding, data.tokenizer)
    replica = build_replica(settings, architecture, recorded.cluster)
    checkpoints = Checkpoints(tmp_path / "checkpoints", description, settings.checkpoint, recorded.recorder.record)
    checkpoints.save(replica.snapshot, [])  # Fails: the folder does not exist yet.
    checkpoints.wait()
    checkpoints.start_writing()
    checkpoints.save(replica.snapshot, [])
    checkpoints.wait()
    failed, saved = recorded.logged
    assert isinstance(failed, CheckpointFailed)
    assert isinstance(saved, CheckpointSaved)
    assert (failed.worker, saved.worker) == (WORKER, WORKER)


def test_the_end_of_a_run_is_the_last_event_of_its_log(recorded):
    recorded.recorder.record(ENDED)
    recorded.recorder.close()
    assert [type(event) for event in recorded.logged] == [HostSampled, RunEnded]


def test_only_the_first_worker_of_a_machine_reads_sensors(tmp_path, monkeypatch):
    monkeypatch.setattr(event_recorder, "Sensors", FakeSensors)
    monkeypatch.setenv("LOCAL_RANK", "1")
    recorded = Recorded(tmp_path)
    recorded.recorder.record(ENDED)
    recorded.recorder.close()
    recorded.cluster.close()
    assert [type(event) for event in recorded.logged] == [RunEnded]


def test_sinks_are_opened_when_a_worker_becomes_the_main_one(recorded):
    recorded.cluster.rank = 1
    recorded.recorder.record(host_sample("a", 1))
    assert recorded.opened == 0
    recorded.cluster.rank = 0
    recorded.recorder.record(host_sample("a", 2))
    recorded.recorder.record(host_sample("a", 3))
    assert len(recorded.logged) == 3
    assert len(recorded.sink.events) == 2
    assert recorded.opened == 1
    recorded.recorder.close()
    assert recorded.sink.closed


def test_an_error_is_logged_and_left_to_its_handler_to_show(recorded):
    recorded.recorder.record(WorkerFailed(step=4, error="ValueError: no"))
    assert [type(event) for event in recorded.logged] == [WorkerFailed]
    assert recorded.sink.events == []


def test_the_worker_that_leads_a_folder_writes_its_curves(recorded, tmp_path):
    recorded.cluster.rank = 1
    recorded.recorder.record(evaluation(10, 3.0, 1.0, 1.0))
    assert not (tmp_path / "tensorboard").exists(), "another worker writes them"
    recorded.recorder.event_sync.leads_folder = True
    recorded.recorder.record(evaluation(20, 2.0, 2.0, 2.0))
    recorded.recorder.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [scalar.step for scalar in board.Scalars("eval/bleu")] == [20]


def test_logged_events_are_not_shown(recorded):
    event = recorded.recorder.log(host_sample("a", 1))
    assert event.worker == WORKER
    assert recorded.sink.events == []

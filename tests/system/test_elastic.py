"""An elastic run over three hosts loses no step when workers, hosts or links fail.

One run goes through all failures, one after the other. Host b fails last, so that its log covers all of them.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.event_log import read_events
from dragoman.events import CheckpointSaved, Event, MessagesRejected, RunStarted, StepDone, WorkersLost, WorldChanged
from dragoman.run_folder import RunFolder

from ..processes import train
from .hosts import Host, Hosts, missing_requirements
from .stranger import Recording, attack, open_ports
from .test_launch import command, workers_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
    pytest.mark.timeout(1200),  # The fixture of the first test takes as long as the entire run.
]

TIMEOUT_S = 240.0
ATTEMPTS = 3
"""On a busy machine a worker may be lost during an attack by chance, but not during each."""
WORKERS = {"a": 0, "b": 1, "c": 2}
# With a higher learning rate, rounding differences of the all-reduce would grow over many steps and show in the losses.
EXACT_SETTINGS = (
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "schedule.learning_rate=0.00005",
    "evaluation.bleu=false",
    "evaluation.every=100000",
)
ALL_WORKERS = ["worker 0 on a", "worker 1 on b", "worker 2 on c"]


class ElasticLaunch:
    """A `dragoman launch` process over all hosts, and the events that their workers have recorded so far."""

    def __init__(self, hosts: Hosts, data: Path, steps: int, output: Path, *more_settings: str) -> None:
        self.hosts = hosts
        self.output = output
        self._events: dict[str, list[Event]] = {host: [] for host in WORKERS}
        self._offsets = dict.fromkeys(WORKERS, 0)
        options = ("--elastic", "--ssh-config", str(hosts.ssh_config))
        settings = (*EXACT_SETTINGS, f"training.steps={steps}", "checkpoint.every=20", "exchange.method=plain")
        settings += more_settings
        with output.open("w") as file:
            self.process = subprocess.Popen(
                command("a,b,c", data, *settings, options=options),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def events(self, host: str) -> list[Event]:
        """All events so far. Only new ones are read: a run of many steps has a long log."""
        path = RunFolder(self.hosts[host].folder / "run").events_of(WORKERS[host])
        if path.exists():
            events, self._offsets[host] = read_events(path, self._offsets[host])
            self._events[host] += events
        return self._events[host]

    def step(self, host: str) -> int:
        return max((event.step for event in self.events(host) if isinstance(event, StepDone)), default=0)

    def world(self, host: str) -> list[str]:
        """Workers of the world that a host is in."""
        worlds = [event.workers for event in self.events(host) if isinstance(event, RunStarted | WorldChanged)]
        return worlds[-1] if worlds else []

    def wait_until(self, condition: Callable[[], object], awaited: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, f"the launcher ended before {awaited}:\n{self.output.read_text()}"
            assert time.monotonic() < deadline, f"waited too long for {awaited}:\n{self.output.read_text()}"
            time.sleep(0.1)

    def wait_for_steps(self, host: str, more: int) -> None:
        goal = self.step(host) + more
        self.wait_until(lambda: self.step(host) >= goal, f"step {goal} of {host}")

    def wait_for_world(self, host: str, workers: Sequence[str]) -> None:
        self.wait_until(lambda: self.world(host) == workers, f"{host} to be in a world of {workers}")

    def lost_workers_events(self, host: str) -> list[WorkersLost]:
        return [event for event in self.events(host) if isinstance(event, WorkersLost)]

    def workers_lost_since(self, host: str, events: int) -> list[str]:
        """Workers that a host has lost since it had recorded so many losses."""
        return [worker for event in self.lost_workers_events(host)[events:] for worker in event.workers]


@dataclass(frozen=True)
class ElasticRun:
    """Result of a run with failures of all kinds."""

    events: dict[str, list[Event]]
    steps: int
    """Last step of the run."""
    newest_checkpoint_step: int
    """Step of the newest checkpoint that any host had when all hosts were lost."""
    reported_lost: dict[str, list[str]]
    """For each failure, the workers that b recorded as lost."""
    output: str


def kill_worker(host: Host) -> None:
    os.kill(workers_of(host)[0], signal.SIGKILL)


def kill_lighthouse(host: Host) -> None:
    for pid in host.find_processes("dragoman.launch.lighthouse"):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def elastic_run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticRun]:
    folder = tmp_path_factory.mktemp("elastic")
    reported_lost: dict[str, list[str]] = {}
    with Hosts(["a", "b", "c"]) as hosts:
        recording = Recording(hosts["b"])
        launch = ElasticLaunch(hosts, data.path, 100_000, folder / "first.txt")

        def lose_c(failure: str, fail: Callable[[], None]) -> None:
            before = len(launch.lost_workers_events("b"))
            fail()
            # Not for a world without c: a killed worker may be back before the others have formed one.
            launch.wait_until(lambda: launch.workers_lost_since("b", before), f"b to lose c ({failure})")
            launch.wait_for_steps("b", 3)
            reported_lost[failure] = launch.workers_lost_since("b", before)

        def wait_for_c() -> None:
            launch.wait_for_world("b", ALL_WORKERS)
            launch.wait_for_steps("c", 3)

        try:
            launch.wait_for_world("b", ALL_WORKERS)
            launch.wait_for_steps("b", 10)
            for _ in range(ATTEMPTS):
                before = len(launch.lost_workers_events("b"))
                for port in [port for host in hosts for port in open_ports(host)]:
                    attack(port, recording.messages(port.protocol), 400)
                launch.wait_for_steps("b", 3)
                reported_lost["strangers"] = launch.workers_lost_since("b", before)
                if not reported_lost["strangers"]:
                    break
                launch.wait_for_world("b", ALL_WORKERS)
            recording.close()
            lose_c("worker killed", lambda: kill_worker(hosts["c"]))
            kill_lighthouse(hosts["a"])
            launch.wait_for_steps("b", 3)
            wait_for_c()
            lose_c("host killed", hosts["c"].kill)
            hosts["c"].restart()
            wait_for_c()
            lose_c("host frozen", hosts["c"].freeze)
            hosts["c"].thaw()
            wait_for_c()
            lose_c("host disconnected", hosts["c"].disconnect)
            hosts["c"].reconnect()
            wait_for_c()
            hosts["a"].kill()
            launch.wait_for_world("b", ALL_WORKERS[1:])
            launch.wait_for_steps("b", 45)  # Until b and c have checkpoints that a does not have.
        finally:
            os.killpg(launch.process.pid, signal.SIGKILL)
            launch.process.wait()
        last_step_before_loss = max(launch.step(host) for host in "bc")
        hosts["b"].kill()
        hosts["c"].kill()
        newest_checkpoint_step = max(_newest_checkpoint(host) for host in hosts)
        assert newest_checkpoint_step > _newest_checkpoint(hosts["a"])
        for host in hosts:
            host.restart()
        relaunch = ElasticLaunch(hosts, data.path, last_step_before_loss + 30, folder / "again.txt")
        assert relaunch.process.wait(timeout=TIMEOUT_S) == 0, relaunch.output.read_text()
        events = {host: launch.events(host) for host in WORKERS}
        yield ElasticRun(
            events,
            last_step_before_loss + 30,
            newest_checkpoint_step,
            reported_lost,
            launch.output.read_text() + relaunch.output.read_text(),
        )


def _newest_checkpoint(host: Host) -> int:
    checkpoints = sorted((host.folder / "run" / "checkpoints").glob("step-*"))
    return int(checkpoints[-1].name.removeprefix("step-")) if checkpoints else 0


@pytest.fixture(scope="module")
def reference_steps(
    elastic_run: ElasticRun, data: DataSet, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, StepDone]:
    """Steps of the same run with one worker and no failures."""
    run = tmp_path_factory.mktemp("reference") / "run"
    train(data.path, run, *EXACT_SETTINGS, f"training.steps={elastic_run.steps}", "checkpoint.every=100000", workers=1)
    return {event.step: event for event in RunFolder(run).events() if isinstance(event, StepDone)}


def steps_of_final_state(events: Sequence[Event]) -> list[StepDone]:
    """Steps that a host recorded and that led to its final state: without those that a resume rolled back."""
    steps: list[StepDone] = []
    for event in events:
        if isinstance(event, RunStarted):
            steps = [done for done in steps if done.step <= event.resumed_step]
        elif isinstance(event, StepDone):
            steps.append(event)
    return steps


def test_last_host_to_fail_takes_every_step_once_and_in_order(elastic_run):
    steps = [done.step for done in steps_of_final_state(elastic_run.events["b"])]
    assert steps == sorted(set(steps))
    assert steps[-1] == elastic_run.steps


def test_no_step_is_lost(elastic_run):
    steps = {done.step for events in elastic_run.events.values() for done in steps_of_final_state(events)}
    assert steps == set(range(1, elastic_run.steps + 1))


def test_losses_equal_those_of_one_worker_without_failures(elastic_run, reference_steps):
    expected = {step: done.loss for step, done in reference_steps.items()}
    for events in elastic_run.events.values():
        for done in events:
            if isinstance(done, StepDone):
                assert done.loss == pytest.approx(expected[done.step], rel=1e-4), done


def test_no_sentence_pair_is_lost_or_repeated(elastic_run, reference_steps):
    for events in elastic_run.events.values():
        for done in steps_of_final_state(events):
            reference = reference_steps[done.step]
            assert (done.epoch, done.batch, done.pairs) == (reference.epoch, reference.batch, reference.pairs)


@pytest.mark.parametrize("failure", ["worker killed", "host killed", "host frozen", "host disconnected"])
def test_lost_workers_are_reported_with_host_and_last_activity(elastic_run, failure):
    reported = [worker for worker in elastic_run.reported_lost[failure] if worker.startswith("worker 2 on c (")]
    assert reported
    assert all("heard" in worker for worker in reported)


def test_loss_of_the_first_host_is_reported_like_that_of_any_other(elastic_run):
    lost = [worker for event in elastic_run.events["b"] if isinstance(event, WorkersLost) for worker in event.workers]
    assert any(worker.startswith("worker 0 on a (") for worker in lost)


def test_run_resumes_from_the_newest_checkpoint_of_any_host_after_the_loss_of_all(elastic_run):
    last_starts = {
        host: [event for event in events if isinstance(event, RunStarted)][-1]
        for host, events in elastic_run.events.items()
    }
    assert {host: event.resumed_step for host, event in last_starts.items()} == dict.fromkeys(
        WORKERS, elastic_run.newest_checkpoint_step
    )
    assert f"Finished after {elastic_run.steps} steps" in elastic_run.output
    saved = [event.step for event in elastic_run.events["a"] if isinstance(event, CheckpointSaved)]
    assert saved[-1] == elastic_run.steps


def test_strangers_are_reported_and_cause_no_loss(elastic_run):
    assert elastic_run.reported_lost["strangers"] == []
    for host in WORKERS:
        assert any(isinstance(event, MessagesRejected) for event in elastic_run.events[host]), f"events of {host}"
    assert "at the lighthouse's port" in elastic_run.output


def test_launcher_reports_restarted_workers_and_hosts(elastic_run):
    assert "Worker 2 on c failed (SIGKILL) and is restarted." in elastic_run.output
    assert "c is back: starting its workers." in elastic_run.output

"""A run over three hosts that lose workers, power, cables and each other, and never a step.

One run goes through all mishaps, one after the other. Host b is spared until the end: its log tells the story.
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
from dragoman.events import CheckpointSaved, Event, RunStarted, StepDone, WorkersLost, WorldChanged
from dragoman.run_folder import RunFolder

from ..processes import train
from .hosts import Host, Hosts, why_not
from .test_launch import command, workers_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.timeout(1200),  # The first test waits for the whole run.
]

PATIENCE_S = 240.0
SLOTS = {"a": 0, "b": 1, "c": 2}
# A small rate: over many steps a large one would make the rounding of sums visible in the losses.
EXACT = ("model.dropout=0", "schedule.learning_rate=0.00005", "evaluation.bleu=false", "evaluation.every=100000")
ALL = ["worker 0 on a", "worker 1 on b", "worker 2 on c"]


class RunHistory:
    """A launch over all hosts of a bed, and what their workers have recorded so far."""

    def __init__(self, bed: Hosts, data: Path, steps: int, output: Path) -> None:
        self.bed = bed
        self.output = output
        options = ("--elastic", "--ssh-config", str(bed.ssh_config))
        words = (*EXACT, f"training.steps={steps}", "checkpoint.every=20", "exchange.method=plain")
        with output.open("w") as file:
            self.process = subprocess.Popen(
                command("a,b,c", data, *words, options=options),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def events(self, host: str) -> list[Event]:
        return RunFolder(self.bed[host].folder / "run").events(SLOTS[host])

    def step(self, host: str) -> int:
        return max((event.step for event in self.events(host) if isinstance(event, StepDone)), default=0)

    def world(self, host: str) -> list[str]:
        """The workers of the world that a host is in."""
        known = [event.workers for event in self.events(host) if isinstance(event, RunStarted | WorldChanged)]
        return known[-1] if known else []

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"the launcher ended before {what}:\n{self.output.read_text()}"
            assert time.monotonic() < deadline, f"waited too long for {what}:\n{self.output.read_text()}"
            time.sleep(0.1)

    def wait_for_steps(self, host: str, more: int) -> None:
        goal = self.step(host) + more
        self.wait_until(lambda: self.step(host) >= goal, f"step {goal} of {host}")

    def wait_for_world(self, host: str, workers: Sequence[str]) -> None:
        self.wait_until(lambda: self.world(host) == workers, f"{host} to be in a world of {workers}")

    def losses_told(self, host: str) -> list[WorkersLost]:
        return [event for event in self.events(host) if isinstance(event, WorkersLost)]


@dataclass(frozen=True)
class Told:
    """What is left of a story when it is over."""

    events: dict[str, list[Event]]
    steps: int
    """Where it ended."""
    lost_at: int
    """The last step before all hosts were lost."""
    newest: int
    """The newest checkpoint that any host had then."""
    named: dict[str, list[str]]
    """Mishaps, and whom b said to be lost."""
    output: str


def kill_worker(host: Host) -> None:
    os.kill(workers_of(host)[0], signal.SIGKILL)


def kill_lighthouse(host: Host) -> None:
    for number in host.find("dragoman.launch.lighthouse"):
        os.kill(number, signal.SIGKILL)


@pytest.fixture(scope="module")
def told(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("elastic")
    named: dict[str, list[str]] = {}
    with Hosts(["a", "b", "c"]) as bed:
        story = RunHistory(bed, data.path, 100_000, folder / "first.txt")
        spared = [worker for worker in ALL if not worker.endswith("c")]

        def lose_c(mishap: str, lose: Callable[[], None]) -> None:
            before = len(story.losses_told("b"))
            lose()
            story.wait_for_world("b", spared)
            story.wait_for_steps("b", 3)
            named[mishap] = [worker for event in story.losses_told("b")[before:] for worker in event.workers]

        def see_c_back() -> None:
            story.wait_for_world("b", ALL)
            story.wait_for_steps("c", 3)

        try:
            story.wait_for_world("b", ALL)
            story.wait_for_steps("b", 10)
            lose_c("killed worker", lambda: kill_worker(bed["c"]))
            kill_lighthouse(bed["a"])
            story.wait_for_steps("b", 3)
            see_c_back()
            lose_c("no power", bed["c"].kill)
            bed["c"].revive()
            see_c_back()
            lose_c("frozen", bed["c"].freeze)
            bed["c"].thaw()
            see_c_back()
            lose_c("cut off", bed["c"].cut)
            bed["c"].mend()
            see_c_back()
            bed["a"].kill()
            story.wait_for_world("b", ALL[1:])
            story.wait_for_steps("b", 45)  # Checkpoints that a has not seen.
        finally:
            os.killpg(story.process.pid, signal.SIGKILL)
            story.process.wait()
        lost_at = max(story.step(host) for host in "bc")
        bed["b"].kill()
        bed["c"].kill()
        newest = max(_newest_checkpoint(host) for host in bed)
        assert newest > _newest_checkpoint(bed["a"])
        for host in bed:
            host.revive()
        again = RunHistory(bed, data.path, lost_at + 30, folder / "again.txt")
        assert again.process.wait(timeout=PATIENCE_S) == 0, again.output.read_text()
        events = {host: story.events(host) for host in SLOTS}
        yield Told(events, lost_at + 30, lost_at, newest, named, story.output.read_text() + again.output.read_text())


def _newest_checkpoint(host: Host) -> int:
    found = sorted((host.folder / "run" / "checkpoints").glob("step-*"))
    return int(found[-1].name.removeprefix("step-")) if found else 0


@pytest.fixture(scope="module")
def undisturbed(told: Told, data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> dict[int, StepDone]:
    """The same run by one worker, from beginning to end."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(data.path, run, *EXACT, f"training.steps={told.steps}", "checkpoint.every=100000", workers=1)
    return {event.step: event for event in RunFolder(run).events() if isinstance(event, StepDone)}


def lineage(events: Sequence[Event]) -> list[StepDone]:
    """The steps that a host's present state has come through, as far as it saw them."""
    steps: list[StepDone] = []
    for event in events:
        if isinstance(event, RunStarted):
            steps = [done for done in steps if done.step <= event.resumed_step]
        elif isinstance(event, StepDone):
            steps.append(event)
    return steps


def test_the_spared_host_takes_every_step_once_and_in_order(told):
    steps = [done.step for done in lineage(told.events["b"])]
    assert steps == sorted(set(steps))
    assert steps[-1] == told.steps


def test_no_step_is_lost(told):
    taken = {done.step for events in told.events.values() for done in lineage(events)}
    assert taken == set(range(1, told.steps + 1))


def test_all_losses_are_those_of_one_worker_that_nothing_happens_to(told, undisturbed):
    wanted = {step: done.loss for step, done in undisturbed.items()}
    for events in told.events.values():
        for done in events:
            if isinstance(done, StepDone):
                assert done.loss == pytest.approx(wanted[done.step], rel=1e-4), done


def test_no_pair_is_lost_or_repeated(told, undisturbed):
    for events in told.events.values():
        for done in lineage(events):
            planned = undisturbed[done.step]
            assert (done.epoch, done.batch, done.pairs) == (planned.epoch, planned.batch, planned.pairs)


@pytest.mark.parametrize("mishap", ["killed worker", "no power", "frozen", "cut off"])
def test_whoever_is_lost_is_named_with_its_host_and_its_last_words(told, mishap):
    assert told.named[mishap]
    assert all(worker.startswith("worker 2 on c (") and "heard" in worker for worker in told.named[mishap])


def test_the_loss_of_the_first_host_is_a_loss_like_any_other(told):
    lost = [worker for event in told.events["b"] if isinstance(event, WorkersLost) for worker in event.workers]
    assert any(worker.startswith("worker 0 on a (") for worker in lost)


def test_after_the_loss_of_all_hosts_the_run_goes_on_from_the_newest_checkpoint_of_any(told):
    last_start = {
        host: [event for event in events if isinstance(event, RunStarted)][-1] for host, events in told.events.items()
    }
    assert {host: event.resumed_step for host, event in last_start.items()} == dict.fromkeys(SLOTS, told.newest)
    assert f"Finished after {told.steps} steps" in told.output
    saved = [event.step for event in told.events["a"] if isinstance(event, CheckpointSaved)]
    assert saved[-1] == told.steps


def test_the_launcher_tells_of_those_who_come_back(told):
    assert "Worker 2 on c died and is restarted." in told.output
    assert "c is back: starting its workers." in told.output

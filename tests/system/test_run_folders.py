"""The first host of an elastic run is lost, returns and is lost for good: any other host still shows the whole run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dragoman.corpus.dataset import DataSet
from dragoman.insight.live_server import WatchedRuns
from dragoman.paired_bootstrap import bootstrap

from .hosts import Hosts, missing_requirements
from .test_elastic import ALL_WORKERS, TIMEOUT_S, ElasticLaunch

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
    pytest.mark.timeout(900),  # The fixture of the first test takes as long as the entire run.
]

EVALUATE_EVERY = 5


@dataclass(frozen=True)
class SurvivedRun:
    """What each surviving host shows of the run, and what the launcher printed."""

    folders: dict[str, Path]
    returned_folder: dict[str, Any]
    """What the folder of the returned first host showed, before it was lost for good."""
    output: str

    def inspected(self, host: str) -> dict[str, Any]:
        return shown("inspect", self.folders[host])


def shown(verb: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "dragoman", verb, str(folder), "--json"]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


@pytest.fixture(scope="module")
def survived_run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SurvivedRun]:
    output = tmp_path_factory.mktemp("folders") / "launch.txt"
    with Hosts(["a", "b", "c"]) as hosts:
        settings = (f"evaluation.every={EVALUATE_EVERY}", "checkpoint.every=10")
        launch = ElasticLaunch(hosts, data.path, 100_000, output, *settings)
        folders = {host.name: host.folder / "run" for host in hosts}
        try:
            launch.wait_for_world("b", ALL_WORKERS)
            launch.wait_for_steps("b", 2 * EVALUATE_EVERY)
            hosts["a"].kill()
            launch.wait_for_world("b", ALL_WORKERS[1:])
            launch.wait_for_steps("b", 2 * EVALUATE_EVERY)
            hosts["a"].restart()
            launch.wait_for_world("b", ALL_WORKERS)
            launch.wait_for_steps("a", EVALUATE_EVERY)
            returned_folder = shown("inspect", folders["a"])
            hosts["a"].kill()
            launch.wait_for_world("b", ALL_WORKERS[1:])
            launch.wait_for_steps("b", 2 * EVALUATE_EVERY)
            launch.process.send_signal(signal.SIGINT)
            launch.process.wait(timeout=TIMEOUT_S)
        finally:
            if launch.process.poll() is None:
                os.killpg(launch.process.pid, signal.SIGKILL)
        del folders["a"]
        yield SurvivedRun(folders, returned_folder, output.read_text())


def test_surviving_folders_show_the_same_run(survived_run):
    b, c = (survived_run.inspected(host) for host in "bc")
    for fact in ("started", "state", "ended", "error", "step", "elapsed_s", "workers", "lost", "evaluations"):
        assert b[fact] == c[fact], fact
    assert b["ended"] == "interrupted"
    assert len(b["started"]) == 1


def test_no_evaluation_is_missing(survived_run):
    content = survived_run.inspected("c")
    steps = [done["step"] for done in content["evaluations"]]
    assert steps == list(range(EVALUATE_EVERY, content["step"] + 1, EVALUATE_EVERY))


def test_both_losses_are_named(survived_run):
    # On a busy machine, others may be lost for a moment, too.
    assert [loss["worker"] for loss in survived_run.inspected("c")["lost"]].count("worker 0 on a") >= 2


def test_the_returned_first_host_had_what_it_missed(survived_run):
    returned = survived_run.returned_folder
    assert "worker 0 on a" in [loss["worker"] for loss in returned["lost"]]
    steps = [done["step"] for done in returned["evaluations"]]
    assert steps == list(range(EVALUATE_EVERY, steps[-1] + 1, EVALUATE_EVERY))
    assert steps[-1] >= returned["step"] - EVALUATE_EVERY


def test_reports_and_the_live_page_show_the_same_run(survived_run):
    runs = list(survived_run.folders.values())
    for b, c in ([shown("report", run) for run in runs], WatchedRuns(runs, bootstrap).content()["runs"]):
        for fact in ("state", "step", "elapsed_s", "lost", "checkpoints"):
            assert b[fact] == c[fact], fact
        assert [done["step"] for done in b["evaluations"]] == [done["step"] for done in c["evaluations"]]
        assert [each["text"] for each in b["incidents"]] == [each["text"] for each in c["incidents"]]


@pytest.mark.parametrize("host", ["b", "c"])
def test_tensorboard_has_every_evaluation(survived_run, host):
    board = EventAccumulator(str(survived_run.folders[host] / "tensorboard"))
    board.Reload()
    expected = [done["step"] for done in survived_run.inspected(host)["evaluations"]]
    assert [scalar.step for scalar in board.Scalars("eval/loss")] == expected


def test_the_launcher_reports_each_loss_once_and_in_plain_words(survived_run):
    reports = [line for line in survived_run.output.splitlines() if line.startswith("Lost worker 0 on a")]
    assert len(reports) == 2, survived_run.output
    assert "peer" not in survived_run.output
    assert "GLHF" not in survived_run.output

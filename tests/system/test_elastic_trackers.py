"""A tracker sees one run when the machine that writes to it is lost, and another one continues."""

import os
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet

from ..peer_environment import peer_python
from .hosts import Hosts, missing_requirements
from .test_launch import command

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]
STEPS = 1500


def query(database: Path, text: str) -> list[tuple]:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection:
        return connection.execute(text).fetchall()
    return []


def test_a_run_that_loses_its_first_machine_stays_one_run(data: DataSet, tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    settings = [
        f"training.steps={STEPS}", "evaluation.bleu=false", "evaluation.every=500", "exchange.method=plain",
        'telemetry.trackers=["mlflow"]', f"telemetry.mlflow_uri=sqlite:///{database}",
    ]  # fmt: skip
    with Hosts(["a", "b"]) as hosts:
        options = ("--elastic", "--ssh-config", str(hosts.ssh_config), "--python", str(peer_python()))
        with (tmp_path / "output.txt").open("w") as output:
            launch = subprocess.Popen(
                command("a,b", data.path, *settings, options=options),
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            while not query(database, "SELECT 1 FROM metrics WHERE step > 30"):
                assert launch.poll() is None, (tmp_path / "output.txt").read_text()
                time.sleep(0.1)
            hosts["a"].kill()
            assert launch.wait(timeout=250) == 0, (tmp_path / "output.txt").read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(launch.pid, signal.SIGKILL)
    assert len(query(database, "SELECT run_uuid FROM runs")) == 1
    steps = Counter(step for (step,) in query(database, "SELECT step FROM metrics WHERE key = 'train/loss'"))
    assert steps == Counter(range(1, STEPS + 1))
    assert query(database, "SELECT step FROM metrics WHERE key = 'eval/loss' ORDER BY step") == [
        (500,),
        (1000,),
        (1500,),
    ]

"""Runs in MLflow, Weights & Biases (offline) and trackio, with the real packages in an environment of their own."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.events import StepDone
from dragoman.run_folder import RunFolder

from ..peer_environment import peer_python
from ..small import TINY

STEPS = 1000
EVALUATED = 250
SETTINGS = [
    *TINY, f"training.steps={STEPS}", f"evaluation.every={EVALUATED}", "checkpoint.every=100", "evaluation.sentences=1",
]  # fmt: skip
MLFLOW_READER = """
import json
from mlflow.tracking import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name("dragoman")
runs = [
    {
        "name": run.info.run_name,
        "steps": [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")],
        "evaluated": [metric.step for metric in client.get_metric_history(run.info.run_id, "eval/loss")],
        "losses": {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")},
    }
    for run in client.search_runs([experiment.experiment_id])
]
print(json.dumps(runs))
"""
TRACKIO_READER = """
import json
from trackio.sqlite_storage import SQLiteStorage
runs = []
for name in SQLiteStorage.get_runs("dragoman"):
    logs = SQLiteStorage.get_logs("dragoman", name)
    runs.append({
        "name": name,
        "steps": [log["step"] for log in logs if "train/loss" in log],
        "evaluated": [log["step"] for log in logs if "eval/loss" in log],
        "losses": {log["step"]: log["train/loss"] for log in logs if "train/loss" in log},
    })
print(json.dumps(runs))
"""
WANDB_READER = """
import json
from collections import defaultdict
from pathlib import Path
from dragoman.telemetry.wandb_files import _records
from wandb.proto.wandb_internal_pb2 import Record
runs = defaultdict(lambda: {"steps": [], "evaluated": [], "losses": {}})
for path in sorted(Path("run").glob("wandb/offline-run-*/*.wandb")):
    for content in _records(path.read_bytes()):
        record = Record.FromString(content)
        if record.WhichOneof("record_type") == "run":
            runs[path.stem]["name"] = record.run.display_name
        if record.WhichOneof("record_type") == "history":
            items = {item.nested_key[0]: item.value_json for item in record.history.item}
            runs[path.stem]["steps"].append(record.history.step.num)
            runs[path.stem]["losses"][record.history.step.num] = float(items["train/loss"])
            if "eval/loss" in items:
                runs[path.stem]["evaluated"].append(record.history.step.num)
print(json.dumps(list(runs.values())))
"""
READERS = {"mlflow": MLFLOW_READER, "wandb": WANDB_READER, "trackio": TRACKIO_READER}


class Training:
    """`dragoman train` in the environment of the trackers, in a folder of its own."""

    def __init__(self, folder: Path, data: DataSet, *trackers: str) -> None:
        self.folder, self.run = folder, RunFolder(folder / "run")
        self.environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "WANDB_MODE": "offline",
            "TRACKIO_DIR": str(folder / "trackio"),
            "OMP_NUM_THREADS": "1",
        }
        chosen = f"telemetry.trackers={json.dumps(trackers)}"
        words = ["train", "tiny", "--data", str(data.path), "--out", "run", "--workers", "1", *SETTINGS, chosen]
        self.command = [str(peer_python()), "-m", "dragoman", *words]

    def start(self) -> "subprocess.Popen[str]":
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.command, cwd=self.folder, env=self.environment, **pipes)

    def finish(self) -> str:
        process = self.start()
        output, errors = process.communicate(timeout=250)
        assert process.returncode == 0, errors
        return str(output)

    def kill_when(self, is_ready: Callable[[], bool]) -> None:
        """Kill it once it is ready, where it has recorded steps that it will repeat."""
        process = self.start()
        while True:
            assert process.poll() is None, process.communicate()
            if is_ready():
                process.send_signal(signal.SIGSTOP)
                if max(self.steps(), default=0) > self.saved_step():
                    break
                process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def saved_step(self) -> int:
        last = self.run.checkpoints / "last"
        return int(last.readlink().name.removeprefix("step-")) if last.is_symlink() else 0

    def steps(self) -> list[int]:
        return [event.step for event in self.run.events() if isinstance(event, StepDone)]

    def received(self, tracker: str) -> bool:
        """Whether a tracker has stored some steps."""
        if tracker == "wandb":
            return any(path.stat().st_size > 30_000 for path in self.folder.glob("run/wandb/*/*.wandb"))
        for path in self.folder.glob("mlflow.db" if tracker == "mlflow" else "trackio/*.db"):
            with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(path)) as database:
                return bool(database.execute("SELECT count(*) > 20 FROM metrics").fetchone()[0])
        return False

    def read(self, tracker: str) -> list[dict]:
        program = [str(peer_python()), "-c", READERS[tracker]]
        return json.loads(subprocess.check_output(program, cwd=self.folder, env=self.environment, text=True))


@pytest.mark.system
@pytest.mark.parametrize("tracker", READERS)
def test_a_run_that_was_killed_and_resumed_is_one_run_without_gap_or_repeated_step(tracker, data, tmp_path):
    training = Training(tmp_path, data, tracker)
    training.kill_when(lambda: training.received(tracker))
    assert len(training.steps()) < STEPS
    training.finish()
    assert len(training.steps()) > STEPS, "the resumed run repeats the steps after the last checkpoint"
    [run] = training.read(tracker)
    assert run["name"].startswith("run")
    assert run["steps"] == list(range(1, STEPS + 1))
    assert run["evaluated"] == list(range(EVALUATED, STEPS + 1, EVALUATED))
    recorded = {event.step: event.loss for event in training.run.events() if isinstance(event, StepDone)}
    assert {int(step): loss for step, loss in run["losses"].items()} == pytest.approx(recorded)

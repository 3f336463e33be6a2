"""Experiment trackers, as an interface to the libraries: MLflow, Weights & Biases, trackio.

Each opens the same run again after a resume or on another machine, and knows the last step that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from dragoman.telemetry.curve_points import CurvePoint
from dragoman.telemetry.wandb_files import last_offline_step

EXIT_CODES = {"finished": 0, "patience": 0}
"""Exit code of a run by the reason for its end; 1 for others."""
MLFLOW_TAG = "dragoman.run"
MLFLOW_STATES = {"finished": "FINISHED", "patience": "FINISHED", "diverged": "FAILED"}
MLFLOW_BATCH_SIZE = 100
"""Points or parameters of one request, which may have a thousand metrics and a hundred parameters."""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker shows of a run, beside its curves."""

    identity: str
    """The same for all sessions and machines of a run."""
    name: str
    project: str
    folder: Path
    settings: dict[str, Any]
    """By `section.name`."""


class Tracker(Protocol):
    """One run in a tracker."""

    def open(self, run: TrackedRun) -> int:
        """Open the run, which may exist. Returns the last step that the tracker has, or -1."""

    def log(self, points: Sequence[CurvePoint]) -> None:
        """Send points of later steps, in order."""

    def close(self, reason: str) -> None:
        """Send what is left. `reason` is why the run ended, or empty."""


class MlflowTracker:
    """A run of MLflow, in the store that the settings or `MLFLOW_TRACKING_URI` name. It is found again by a tag."""

    def open(self, run: TrackedRun) -> int:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(run.settings["telemetry.mlflow_uri"] or None)
        experiment = self._client.get_experiment_by_name(run.project)
        experiment_id = self._client.create_experiment(run.project) if experiment is None else experiment.experiment_id
        found = self._client.search_runs([experiment_id], f"tags.`{MLFLOW_TAG}` = '{run.identity}'")
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            created = self._client.create_run(experiment_id, run_name=run.name, tags={MLFLOW_TAG: run.identity})
            self._run_id = created.info.run_id
            parameters = [Param(key, str(value)) for key, value in run.settings.items()]
            for start in range(0, len(parameters), MLFLOW_BATCH_SIZE):
                self._client.log_batch(self._run_id, params=parameters[start : start + MLFLOW_BATCH_SIZE])
        # The model that a run begins with is evaluated before the first step.
        curves = (self._client.get_metric_history(self._run_id, name) for name in ("train/loss", "eval/loss"))
        return max((metric.step for curve in curves for metric in curve), default=-1)

    def log(self, points: Sequence[CurvePoint]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(points), MLFLOW_BATCH_SIZE):
            metrics = [
                Metric(name, value, round(point.at_s * 1000), point.step)
                for point in points[start : start + MLFLOW_BATCH_SIZE]
                for name, value in point.scalars.items()
            ]
            self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, reason: str) -> None:
        if reason:
            self._client.set_terminated(self._run_id, MLFLOW_STATES.get(reason, "KILLED"))


class WandbTracker:
    """A run of Weights & Biases. Offline (`WANDB_MODE=offline`), each session is a folder in the run folder."""

    def open(self, run: TrackedRun) -> int:
        import wandb

        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
        self._run = wandb.init(
            project=run.project, id=run.identity, name=run.name, resume="allow", dir=run.folder, config=run.settings,
            settings=quiet, reinit="create_new",
        )  # fmt: skip
        # Online, the server knows the next step. Offline, only the files of earlier sessions do.
        return max(int(self._run.step) - 1, last_offline_step(run.folder, run.identity))

    def log(self, points: Sequence[CurvePoint]) -> None:
        for point in points:
            self._run.log(point.scalars, step=point.step)

    def close(self, reason: str) -> None:
        self._run.finish(exit_code=EXIT_CODES.get(reason, 1))


class TrackioTracker:
    """A run of trackio, which it finds again by its name."""

    def open(self, run: TrackedRun) -> int:
        import trackio

        self._run = trackio.init(
            run.project, name=f"{run.name}-{run.identity}", resume="allow", config=run.settings, embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip
        return int(self._run._next_step) - 1  # There is no public name for it that works for remote runs, too.

    def log(self, points: Sequence[CurvePoint]) -> None:
        for point in points:
            self._run.log(point.scalars, step=point.step)

    def close(self, reason: str) -> None:  # noqa: ARG002 (its runs have no state)
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"mlflow": MlflowTracker, "wandb": WandbTracker, "trackio": TrackioTracker}
"""By the name of the package, which is also its name in the settings."""


def missing_packages(trackers: Sequence[str]) -> list[str]:
    """The packages of these trackers that are not installed."""
    return [name for name in trackers if find_spec(name) is None]

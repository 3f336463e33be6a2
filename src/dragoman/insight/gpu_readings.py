"""Sensor readings of the GPUs of a run, while it trained."""

from collections.abc import Sequence
from typing import Any

from dragoman.events import HostSampled
from dragoman.insight.run_history import RunHistory

GpuReading = dict[str, Any]


def training_gpus(history: RunHistory) -> dict[str, list[GpuReading]]:
    """Readings of the GPUs that the run uses, by host, without the time before the first typical step if possible."""
    found = {host: used_gpus(_while_training(history, readings)) for host, readings in history.host_readings.items()}
    return {host: gpus for host, gpus in found.items() if gpus}


def used_gpus(readings: Sequence[HostSampled]) -> list[GpuReading]:
    """GPUs with processes of the run. Where no process is known to be its own, all of them."""
    gpus = [gpu for reading in readings for gpu in reading.gpus]
    ours = {gpu["index"] for gpu in gpus if gpu.get("own_processes")}
    return [gpu for gpu in gpus if not ours or gpu["index"] in ours]


def _while_training(history: RunHistory, readings: Sequence[HostSampled]) -> Sequence[HostSampled]:
    """Readings that began after the first typical step; those that ended after it; or all, whichever exist first."""
    if not history.steady_steps:
        return readings
    since_s = history.steady_steps[0].at_s
    began = [reading for reading in readings if reading.at_s - reading.span_s >= since_s]
    return began or [reading for reading in readings if reading.at_s >= since_s] or readings

"""Progress of a run as plain data: the same facts from the folder of any of its machines."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dragoman.files import read_json
from dragoman.insight.run_history import RunLogReader
from dragoman.run_folder import RunFolder


def describe_progress(path: Path) -> dict[str, Any]:
    """Sessions, steps, duration, lost workers and evaluations of the run in a folder, which may not have started."""
    reader = RunLogReader(path)
    reader.read_new()
    history = reader.history_so_far()
    started = history.sessions[-1] if history.sessions else None
    return {
        "started": [first_s for first_s, _ in history.session_spans_s],
        "state": history.state(time.time()) if started else "not started",
        "ended": history.ended.reason if history.ended else None,
        "error": history.failed.error if history.failed else None,
        "step": history.step,
        "steps": started.total_steps if started else read_json(RunFolder(path).config)["settings"]["training"]["steps"],
        "elapsed_s": history.elapsed_s,
        "start": started.start if started else None,
        "workers": history.workers,
        "lost": [asdict(loss) for loss in history.losses],
        "evaluations": [
            {"step": done.step, "loss": done.loss, "nll": done.nll, "bleu": done.bleu, "chrf": done.chrf}
            for done in history.evaluations
        ],
    }

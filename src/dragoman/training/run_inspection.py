"""Inspection of the checkpoints of a run, or of one of them: files and parameters, as plain data."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

from safetensors import safe_open

from dragoman.errors import DragomanError
from dragoman.files import read_json
from dragoman.model.model_folder import MODEL_FILE, WEIGHTS_FILE
from dragoman.run_folder import CHECKPOINT_FILES, RunFolder, hint_at_runs
from dragoman.training.checkpoint import (
    AVERAGED,
    CHECKSUMS_FILE,
    LINKS,
    STATE_FILE,
    find_damage,
    names,
)


def describe(path: Path) -> dict[str, Any]:
    """The checkpoints of a run, or the files and parameters of a checkpoint."""
    if (path / MODEL_FILE).exists():
        return _describe_checkpoint(path)
    run = RunFolder(path)
    if not run.config.exists():
        raise DragomanError(f"{path} is not a data set, run, checkpoint or export: {hint_at_runs(path)}")
    return {
        "run": str(path),
        "checkpoints": [_describe_checkpoint(run.checkpoints / name) for name in names(run.checkpoints)],
        "links": {
            link: (run.checkpoints / link).resolve().name
            for link in (*LINKS, AVERAGED)
            if (run.checkpoints / link).exists()
        },
    }


def _describe_checkpoint(folder: Path) -> dict[str, Any]:
    files = {
        file.name: {"bytes": file.stat().st_size, "holds": CHECKPOINT_FILES.get(file.name, "")}
        for file in sorted(folder.iterdir())
    }
    parameters: Counter[str] = Counter()
    with safe_open(folder / WEIGHTS_FILE, "pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (no mapping: it has no iterator)
            parameters[name.partition(".")[0]] += math.prod(weights.get_slice(name).get_shape())
    return {
        "checkpoint": str(folder),
        "step": read_json(folder / STATE_FILE)["step"] if (folder / STATE_FILE).exists() else None,
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
        "parameters": dict(parameters),
        "damage": find_damage(folder) if (folder / CHECKSUMS_FILE).exists() else None,
    }

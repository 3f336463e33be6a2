"""Report what this host has for a run: torch, GPUs, the data set, disk space, checkpoints."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from dragoman.corpus.data_mixture import open_data, parse_all
from dragoman.corpus.dataset import MANIFEST_FILE, DataSet
from dragoman.corpus.evaluation_set import read_evaluation_sets
from dragoman.errors import DragomanError
from dragoman.launch.preflight import HostReport, checkpoint_bytes, settings_digest
from dragoman.model.architecture import Architecture, parameter_count
from dragoman.recipe import resolve
from dragoman.training import checkpoint

T = TypeVar("T")


def probe(
    recipe: str,
    overrides: Sequence[str],
    data: Sequence[str],
    out: str,
    *,
    also_evaluate: Sequence[str] = (),
    elastic: bool = False,
) -> HostReport:
    """Check everything, and collect the problems instead of stopping at the first."""
    problems: list[str] = []
    if elastic and importlib.util.find_spec("torchft") is None:
        problems.append("has no torchft, which --elastic needs: install dragoman[elastic].")
    settings = _try(problems, lambda: resolve(recipe, overrides).settings)
    paths = [part.path for part in parse_all(data)]
    complete = [_try(problems, partial(complete_data_set, path)) for path in paths]
    found = _try(problems, lambda: open_data(data)) if None not in complete else None
    if found is not None:
        _try(problems, lambda: read_evaluation_sets(also_evaluate, found.tokenizer))
    vocabulary = parameters = needed_bytes = 0
    if settings is not None and found is not None:
        vocabulary = found.tokenizer.padded_vocab_size
        parameters = parameter_count(Architecture(vocabulary=vocabulary, **settings.model.model_dump()))
        needed_bytes = checkpoint_bytes(settings, parameters)
    run = Path(out)
    saved = run / "checkpoints"
    return HostReport(
        torch=torch.__version__,
        gpus=torch.cuda.device_count(),
        settings="" if settings is None else settings_digest(settings),
        data="" if found is None else found.manifest.identity,
        free_bytes=shutil.disk_usage(next(path for path in (run, *run.absolute().parents) if path.exists())).free,
        needed_bytes=needed_bytes,
        parameters=parameters,
        vocabulary=vocabulary,
        checkpoint=next((name for name in checkpoint.names(saved) if checkpoint.find_damage(saved / name) is None), ""),
        problems=problems,
    )


def complete_data_set(path: Path) -> DataSet:
    """A data set with all its files: an interrupted copy may already have its manifest."""
    if not (path / MANIFEST_FILE).is_file():
        raise DragomanError(f"has no data set {path}: use --push to copy it there.")
    data = DataSet(path)
    for name, report in data.manifest.files.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != report.size_bytes:
            raise DragomanError(f"{path} is incomplete, {name} is missing or truncated: copy it again, or use --push.")
    return data


def _try(problems: list[str], look: Callable[[], T]) -> T | None:
    try:
        return look()
    except DragomanError as error:
        problems.append(str(error))
        return None


def main() -> None:
    print(json.dumps(asdict(probe(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main()

"""What a host has for a job: its torch, its GPUs, the data set, room on the disk, checkpoints of the run."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import torch

from dragoman.corpus.dataset import DataSet
from dragoman.errors import DragomanError
from dragoman.launch.preflight import Report, checkpoint_bytes, settings_digest
from dragoman.model.architecture import Architecture, parameter_count
from dragoman.recipe import resolve
from dragoman.training import checkpoint

T = TypeVar("T")


def probe(recipe: str, overrides: Sequence[str], data: str, out: str, *, elastic: bool = False) -> Report:
    problems: list[str] = []
    if elastic and importlib.util.find_spec("torchft") is None:
        problems.append("torchft is not installed, which --elastic needs: install dragoman[elastic].")
    settings = _find(problems, lambda: resolve(recipe, overrides).settings)
    found = _find(problems, lambda: whole_data_set(Path(data)))
    parameters = needed_bytes = 0
    if settings is not None and found is not None:
        vocabulary = found.tokenizer.padded_vocab_size
        parameters = parameter_count(Architecture(vocabulary=vocabulary, **settings.model.model_dump()))
        needed_bytes = checkpoint_bytes(settings, parameters)
    run = Path(out)
    kept = run / "checkpoints"
    return Report(
        torch=torch.__version__,
        gpus=torch.cuda.device_count(),
        settings="" if settings is None else settings_digest(settings),
        data="" if found is None else found.manifest.identity,
        free_bytes=shutil.disk_usage(next(place for place in (run, *run.absolute().parents) if place.exists())).free,
        needed_bytes=needed_bytes,
        parameters=parameters,
        checkpoint=next((name for name in checkpoint.names(kept) if checkpoint.find_damage(kept / name) is None), ""),
        problems=problems,
    )


def whole_data_set(path: Path) -> DataSet:
    """A data set whose files are all there: a copy that was cut short may have its manifest already."""
    data = DataSet(path)
    for name, report in data.manifest.files.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != report.size_bytes:
            raise DragomanError(f"{path} is not whole, {name} is missing or cut short: copy it again, or use --push.")
    return data


def _find(problems: list[str], look: Callable[[], T]) -> T | None:
    try:
        return look()
    except DragomanError as error:
        problems.append(str(error))
        return None


def main() -> None:
    print(json.dumps(asdict(probe(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main()

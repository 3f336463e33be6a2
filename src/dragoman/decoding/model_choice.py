"""The choice of a run's checkpoint to translate with, and of a model's tokenizer. Needs no torch."""

import warnings
from pathlib import Path

from dragoman.corpus.huggingface_folder import HuggingFaceFolder, is_huggingface_folder, split_direction
from dragoman.corpus.huggingface_tokenizer import read_tokenizer
from dragoman.corpus.model_languages import other_direction
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE, TOKENIZER_FILE
from dragoman.errors import DragomanError, DragomanWarning
from dragoman.files import read_json
from dragoman.run_folder import RunFolder, hint_at_runs

CHECKPOINT_PREFERENCE = ("averaged", "best-bleu", "best-loss", "last")
"""Checkpoints of a run, the preferred one for translation first."""
_STATE_FILE = "state.json"


def find_model(path: Path) -> Path:
    """The model folder: `path` itself, or the best checkpoint of the run in `path`.

    An average that was made before the run went on is left out, with a warning. A folder of transformers may have a
    direction in front, as in `en-de=models/nllb`, and keeps it.
    """
    _, folder = split_direction(path)
    if not (folder / DESCRIPTION_FILE).exists() and is_huggingface_folder(folder):
        return path
    if not path.exists():
        raise DragomanError(f"There is no model {path}: check the path.")
    if (path / DESCRIPTION_FILE).exists():
        return path
    for folder in (RunFolder(path).checkpoints, path):
        present = [folder / name for name in CHECKPOINT_PREFERENCE if (folder / name / DESCRIPTION_FILE).exists()]
        if present:
            return _prefer_current(present)
    raise DragomanError(
        f"There is no model in {path}, neither a checkpoint of a run nor a {DESCRIPTION_FILE} nor a model of "
        f"transformers: {hint_at_runs(path)}"
    )


def find_tokenizer(path: Path, languages: Languages) -> Tokenizer:
    """The tokenizer in a file, or of a model, for a direction."""
    stated, folder = split_direction(path)
    if not folder.is_dir():
        return Tokenizer.load(path)
    found = find_model(path)
    if not is_huggingface_folder(folder) or (folder / DESCRIPTION_FILE).exists():
        return Tokenizer.load(found / TOKENIZER_FILE)
    files = HuggingFaceFolder(folder)
    if stated is not None and other_direction(stated, languages):
        files.problems.append(
            f"{stated.direction} in front of the folder is not the direction of the data, {languages.direction}: leave "
            "it out, or give the data that direction"
        )
    tokenizer = read_tokenizer(files, stated or languages)
    files.raise_problems()
    assert tokenizer is not None
    return tokenizer[0]


def _prefer_current(checkpoints: list[Path]) -> Path:
    """The first checkpoint, or the second if the first is the average of an earlier part of the run."""
    first, newest = checkpoints[0], checkpoints[-1]
    averaged_step, newest_step = _step_of(first), _step_of(newest)
    if averaged_step is None or newest_step is None or first.name != "averaged" or averaged_step >= newest_step:
        return first
    warnings.warn(
        f"{first} averages checkpoints up to step {averaged_step:,}, but the run has gone on to step {newest_step:,}: "
        f"using {checkpoints[1].name} instead.",
        DragomanWarning,
        stacklevel=3,
    )
    return checkpoints[1]


def _step_of(checkpoint: Path) -> int | None:
    """The step at which a checkpoint was written; None for a model that does not record it."""
    path = checkpoint / _STATE_FILE
    return int(read_json(path)["step"]) if path.exists() else None

"""Loading of the models to serve; runs and checkpoints are exported to CTranslate2 first."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.decoding.ctranslate2_translator import is_ctranslate2_folder
from dragoman.decoding.glossary import GlossaryFile
from dragoman.decoding.model_choice import find_model
from dragoman.errors import DragomanError
from dragoman.serving.translation_service import TranslationService


def load_service(
    models: Sequence[Path],
    *,
    threads: int,
    on_batch: Callable[[str, int], None],
    on_export: Callable[[Path], None],
    glossaries: Sequence[GlossaryFile] = (),
) -> TranslationService:
    """Load exports, runs or checkpoints. `on_export` is called with each model that has to be exported first."""
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        exports = []
        for index, model in enumerate(models):
            if is_ctranslate2_folder(model):
                exports.append(model)
                continue
            found = find_model(model)
            on_export(model)
            exports.append(_export(found, Path(folder, str(index), model.resolve().name)))
        return TranslationService(exports, threads=threads, on_batch=on_batch, glossaries=glossaries)


def _export(model: Path, out: Path) -> Path:
    """Export to CTranslate2 int8. A separate process does it, so that torch stays out of the server's memory."""
    command = [sys.executable, "-m", "dragoman", "export", str(model), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = " ".join(done.stderr.removeprefix("error:").split())
        raise DragomanError(message or f"{model} cannot be exported: run `dragoman export {model}` to see the error.")
    return out

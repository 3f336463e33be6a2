"""Loading of a translator from a run, a checkpoint or an export. Imports torch only for models that need it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, is_ctranslate2_folder
from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.model_choice import find_model


def load(path: Path | str, device: str | None = None, **decoding: Any) -> LineTranslator:
    """Load a run (its best checkpoint), a checkpoint, a model folder or an export.

    Without a device, a GPU is used if there is one. `decoding` overrides decoding settings, such as `beam=8`.
    """
    folder = find_model(Path(path))
    if not is_ctranslate2_folder(folder):
        from dragoman.decoding.translator import load_on_torch

        return load_on_torch(folder, device, decoding)
    cores = len(os.sched_getaffinity(0))
    # CTranslate2 sets OpenMP's number of threads for the thread that loads a model, and torch would follow it.
    with ThreadPoolExecutor(1) as loader:
        return loader.submit(
            CTranslate2Translator.load, folder, device, parallel_batches=cores, threads=1, **decoding
        ).result()

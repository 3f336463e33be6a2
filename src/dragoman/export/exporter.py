"""A trained model made ready to leave: for CTranslate2, for Hugging Face, or as bare weights; with its card.

Each is one folder, whole or absent, that `dragoman translate`, `score` and `load` take as they take a run.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from safetensors.torch import save_file

from dragoman.decoding.ctranslate2_translator import CARD_FILE, is_exported
from dragoman.decoding.translator import find_model, load_stored, marks_of
from dragoman.errors import DragomanError
from dragoman.export import ctranslate2, huggingface
from dragoman.export.model_card import Circumstances, write_card
from dragoman.files import publish_folder
from dragoman.model.model_folder import WEIGHTS_FILE, StoredModel

Form = Literal["ctranslate2", "huggingface", "safetensors"]
FORMS: tuple[Form, ...] = get_args(Form)
Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)
DEFAULT_QUANTIZATION: Quantization = "int8"


def export(
    model: Path,
    out: Path,
    form: Form,
    quantization: Quantization | None = None,
    circumstances: Circumstances | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a model to a folder of its own."""
    found = find_model(model)
    if is_exported(found):
        raise DragomanError(f"{model} is an export already: export from the run or checkpoint that it was made of.")
    if quantization is not None and form != "ctranslate2":
        raise DragomanError(f"--quantization is for ctranslate2: leave it out for {form}, which keeps all digits.")
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise DragomanError(f"{out} is not empty: choose another --out, or give --overwrite.")
        if not (out / CARD_FILE).exists():
            raise DragomanError(f"{out} is no export, and is not replaced: choose another --out.")
    stored = load_stored(found)
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        stored.description.write(draft)
        chosen = quantization or (DEFAULT_QUANTIZATION if form == "ctranslate2" else "float32")
        _WRITERS[form](stored, draft, chosen)
        write_card(draft, found, stored.description, form, chosen, circumstances or Circumstances())
        draft.chmod(0o755)  # mkdtemp's folders are for their owner alone
        publish_folder(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def _write_ctranslate2(stored: StoredModel, folder: Path, quantization: Quantization) -> None:
    tokenizer = stored.description.tokenizer
    marks = marks_of(tokenizer, stored.model.architecture.vocabulary)
    spec = ctranslate2.specification(stored.model, tokenizer, marks)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _write_huggingface(stored: StoredModel, folder: Path, _: Quantization) -> None:
    marks = marks_of(stored.description.tokenizer, stored.model.architecture.vocabulary)
    huggingface.write(stored.model, stored.description, marks, folder)


def _write_safetensors(stored: StoredModel, folder: Path, _: Quantization) -> None:
    save_file(stored.model.state_dict(), folder / WEIGHTS_FILE)


_WRITERS: dict[Form, Callable[[StoredModel, Path, Quantization], None]] = {
    "ctranslate2": _write_ctranslate2,
    "huggingface": _write_huggingface,
    "safetensors": _write_safetensors,
}

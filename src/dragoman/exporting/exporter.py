"""Export of a trained model for CTranslate2, Argos Translate or Hugging Face, or as plain weights, with a model card.

An export is written atomically. It is one folder that `dragoman translate`, `score` and `load` accept like a run, or
one file for Argos Translate.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from safetensors.torch import save_file

from dragoman.corpus.foreign_tokenizer import ForeignTokenizer
from dragoman.decoding.ctranslate2_translator import CARD_FILE, is_ctranslate2_folder
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.exporting import argos, huggingface
from dragoman.exporting.export_summary import record_format
from dragoman.exporting.model_card import CardOptions, write_card
from dragoman.files import draft_path, publish_folder
from dragoman.model.model_folder import WEIGHTS_FILE, StoredModel, load_model

ExportFormat = Literal["ctranslate2", "argos", "huggingface", "safetensors"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)
DEFAULT_QUANTIZATION: Quantization = "int8"
QUANTIZED_FORMATS = frozenset({"ctranslate2", "argos"})


def export(
    model: Path,
    out: Path,
    export_format: ExportFormat,
    quantization: Quantization | None = None,
    card_options: CardOptions | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write the export of `model` to `out`: a folder, or a file for `argos`."""
    found = find_model(model)
    if is_ctranslate2_folder(found):
        raise DragomanError(f"{model} is already an export: export the run or checkpoint that it was made from.")
    if quantization is not None and export_format not in QUANTIZED_FORMATS:
        raise DragomanError(
            f"--quantization is for ctranslate2 and argos: leave it out for {export_format}, which is float32."
        )
    if export_format == "argos":
        argos.check_package_path(out, overwrite=overwrite)
    else:
        _check_folder(out, overwrite=overwrite)
    stored = load_model(found)
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_path(out)
    draft.mkdir()
    try:
        if export_format != "huggingface" or not isinstance(stored.description.tokenizer, ForeignTokenizer):
            stored.description.write(draft)  # Otherwise transformers would take our tokenizer for its own.
        chosen = quantization or (DEFAULT_QUANTIZATION if export_format in QUANTIZED_FORMATS else "float32")
        _WRITERS[export_format](stored, draft, chosen)
        record_format(draft, export_format, chosen)
        write_card(draft, found, stored.description, export_format, chosen, card_options or CardOptions())
        if export_format == "argos":
            argos.write_package(draft, stored.description.languages, stored.description.tokenizer, out)
        else:
            publish_folder(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def _check_folder(out: Path, *, overwrite: bool) -> None:
    """Raise an error if no export can be written to the folder."""
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise DragomanError(f"{out} is not empty: choose another --out, or give --overwrite.")
        if not (out / CARD_FILE).exists():
            raise DragomanError(f"{out} is not an export and is not replaced: choose another --out.")


def file_sizes(export: Path) -> dict[str, int]:
    """The files of an export with their sizes in bytes."""
    if export.is_file():
        return {export.name: export.stat().st_size}
    return {file.name: file.stat().st_size for file in sorted(export.iterdir())}


def _write_ctranslate2(
    stored: StoredModel, folder: Path, quantization: Quantization, *, adds_source_prefix: bool = False
) -> None:
    from dragoman.exporting import ctranslate2  # Imported here: machines that translate on GPUs do not need it.

    tokenizer = stored.description.tokenizer
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, stored.model.architecture.vocabulary)
    spec = ctranslate2.specification(stored.model, tokenizer, special_tokens, adds_source_prefix=adds_source_prefix)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _write_huggingface(stored: StoredModel, folder: Path, _: Quantization) -> None:
    special_tokens = SpecialTokens.from_tokenizer(stored.description.tokenizer, stored.model.architecture.vocabulary)
    huggingface.write(stored.model, stored.description, special_tokens, folder)


def _write_safetensors(stored: StoredModel, folder: Path, _: Quantization) -> None:
    save_file(stored.model.state_dict(), folder / WEIGHTS_FILE)


_WRITERS: dict[ExportFormat, Callable[[StoredModel, Path, Quantization], None]] = {
    "ctranslate2": _write_ctranslate2,
    "argos": partial(_write_ctranslate2, adds_source_prefix=True),
    "huggingface": _write_huggingface,
    "safetensors": _write_safetensors,
}

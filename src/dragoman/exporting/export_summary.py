"""Description of an export, from the files in its folder. Needs no torch, so that a server can show its models."""

from pathlib import Path
from typing import Any

from dragoman.corpus.huggingface_folder import is_huggingface_folder
from dragoman.decoding.ctranslate2_translator import CARD_FILE, DESCRIPTION_FILE
from dragoman.files import read_json, write_json
from dragoman.model.architecture import Architecture, parameter_count

FILE_CONTENTS = {
    CARD_FILE: "model card: scores, data, licences, limits",
    DESCRIPTION_FILE: "architecture, languages, decoding settings",
    "tokenizer.model": "SentencePiece tokenizer",
    "model.bin": "weights for CTranslate2",
    "config.json": "configuration for the library that loads the weights",
    "shared_vocabulary.json": "vocabulary for CTranslate2",
    "weights.safetensors": "weights",
    "model.safetensors": "weights under the names of Hugging Face",
    "generation_config.json": "decoding settings for Hugging Face",
    "tokenizer.json": "tokenizer for Hugging Face",
    "tokenizer_config.json": "configuration of the tokenizer for Hugging Face",
}
_EXPORT = "export"
"""Key of the description under which an export records its format."""


def is_export(folder: Path) -> bool:
    has_model = (folder / DESCRIPTION_FILE).exists() or is_huggingface_folder(folder)
    return has_model and (folder / CARD_FILE).exists()


def record_format(folder: Path, export_format: str, quantization: str) -> None:
    """Add the format of an export to the description in its folder, if it has one."""
    path = folder / DESCRIPTION_FILE
    if path.exists():
        write_json(path, {**read_json(path), _EXPORT: {"format": export_format, "quantization": quantization}})


def describe_export(folder: Path) -> dict[str, Any]:
    """Languages, architecture, format and files of an export.

    A package for Argos is one file, of which only the size is known; a folder for transformers whose tokenizer was
    imported from there has no description of ours, and only its files are known.
    """
    if folder.is_file():
        return {"export": str(folder), "format": "argos", "bytes": folder.stat().st_size}
    files: dict[str, dict[str, Any]] = {
        file.name: {"bytes": file.stat().st_size, "holds": FILE_CONTENTS.get(file.name, "")}
        for file in sorted(folder.iterdir())
    }
    total = sum(file["bytes"] for file in files.values())
    if not (folder / DESCRIPTION_FILE).exists():
        return {"export": str(folder), "format": "huggingface", "bytes": total, "files": files}
    description = read_json(folder / DESCRIPTION_FILE)
    return {
        "export": str(folder),
        "format": description.get(_EXPORT, {}).get("format"),
        "quantization": description.get(_EXPORT, {}).get("quantization"),
        "languages": description["languages"],
        "architecture": description["architecture"],
        "parameters": parameter_count(Architecture(**description["architecture"])),
        "decoding": description["decoding"],
        "bytes": total,
        "files": files,
    }

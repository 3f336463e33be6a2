"""Description of an export, from the files in its folder. Needs no torch, so that a server can show its models."""

from pathlib import Path
from typing import Any

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
    return (folder / CARD_FILE).exists() and (folder / DESCRIPTION_FILE).exists()


def record_format(folder: Path, export_format: str, quantization: str) -> None:
    """Add the format of an export to the description in its folder."""
    path = folder / DESCRIPTION_FILE
    write_json(path, {**read_json(path), _EXPORT: {"format": export_format, "quantization": quantization}})


def describe_export(folder: Path) -> dict[str, Any]:
    """Languages, architecture, format and files of an export. Of a package for Argos, which is one file, its size."""
    if folder.is_file():
        return {"export": str(folder), "format": "argos", "bytes": folder.stat().st_size}
    description = read_json(folder / DESCRIPTION_FILE)
    files = {
        file.name: {"bytes": file.stat().st_size, "holds": FILE_CONTENTS.get(file.name, "")}
        for file in sorted(folder.iterdir())
    }
    return {
        "export": str(folder),
        "format": description.get(_EXPORT, {}).get("format"),
        "quantization": description.get(_EXPORT, {}).get("quantization"),
        "languages": description["languages"],
        "architecture": description["architecture"],
        "parameters": parameter_count(Architecture(**description["architecture"])),
        "decoding": description["decoding"],
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
    }

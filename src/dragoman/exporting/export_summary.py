"""Description of an export, from the files in its folder. Needs no torch, so that a server can show its models."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dragoman.corpus.huggingface_folder import is_huggingface_folder
from dragoman.decoding.ctranslate2_translator import CARD_FILE, DESCRIPTION_FILE
from dragoman.exporting import argos
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
    argos.METADATA_FILE: "languages and versions for Argos Translate",
    argos.SENTENCEPIECE_FILE: "SentencePiece tokenizer",
}
_EXPORT = "export"
"""Key of the description under which an export records its format."""


def is_export(path: Path) -> bool:
    has_model = (path / DESCRIPTION_FILE).exists() or is_huggingface_folder(path)
    return argos.is_package(path) or (has_model and (path / CARD_FILE).exists())


def record_format(folder: Path, export_format: str, quantization: str) -> None:
    """Add the format of an export to the description in its folder, if it has one."""
    path = folder / DESCRIPTION_FILE
    if path.exists():
        write_json(path, {**read_json(path), _EXPORT: {"format": export_format, "quantization": quantization}})


def describe_export(folder: Path) -> dict[str, Any]:
    """Languages, architecture, format and files of an export.

    A package for Argos is one file, and has no description of ours; a folder for transformers whose tokenizer was
    imported from there has none either, and only its files are known.
    """
    if argos.is_package(folder):
        package = argos.read_package(folder)
        return {
            "export": str(folder),
            "format": "argos",
            "languages": asdict(package.languages),
            "bytes": folder.stat().st_size,
            "files": {
                name: {"bytes": size_bytes, "holds": FILE_CONTENTS.get(Path(name).name, "")}
                for name, size_bytes in package.size_bytes.items()
            },
        }
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

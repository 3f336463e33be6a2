"""Argos Translate packages (`.argosmodel`): a zip archive that Argos Translate installs and LibreTranslate serves."""

import json
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from dragoman.corpus.language_names import language_name
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.ctranslate2_translator import CARD_FILE, DESCRIPTION_FILE, TOKENIZER_FILE
from dragoman.errors import DragomanError
from dragoman.files import replacing

PACKAGE_SUFFIX = ".argosmodel"
PACKAGE_VERSION = "1.0"
ARGOS_VERSION = "1.9.0"
"""The oldest Argos Translate that the package is meant for."""
METADATA_FILE = "metadata.json"
SENTENCEPIECE_FILE = "sentencepiece.model"


@dataclass(frozen=True)
class PackageContents:
    """What a package states of itself."""

    languages: Languages
    size_bytes: dict[str, int]
    """Sizes of its files, unpacked, by their path in the package."""


def check_package_path(path: Path, *, overwrite: bool) -> None:
    """Raise an error if no package can be written to `path`."""
    if path.suffix != PACKAGE_SUFFIX:
        raise DragomanError(f"{path} is not the name of an Argos package: let --out end in {PACKAGE_SUFFIX}.")
    if path.is_dir():
        raise DragomanError(f"{path} is a folder: choose another --out.")
    if path.exists() and not overwrite:
        raise DragomanError(f"{path} exists: choose another --out, or give --overwrite.")


def write_package(folder: Path, languages: Languages, tokenizer: Tokenizer, path: Path) -> None:
    """Pack the folder of an export for CTranslate2. Argos finds sentence boundaries with a model of its own."""
    version = PACKAGE_VERSION.replace(".", "_")
    root = f"translate-{languages.source}_{languages.target}-{version}"
    with replacing(path) as draft, ZipFile(draft, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"{root}/{METADATA_FILE}", json.dumps(metadata(languages, tokenizer), indent=2) + "\n")
        # Argos encodes the source with it; of translations, it joins the pieces.
        archive.writestr(f"{root}/{SENTENCEPIECE_FILE}", tokenizer.source_model)
        for file in sorted(folder.iterdir()):
            if file.name not in (DESCRIPTION_FILE, TOKENIZER_FILE):
                archive.write(file, f"{root}/{file.name if file.name == CARD_FILE else f'model/{file.name}'}")


def is_package(path: Path) -> bool:
    return path.suffix == PACKAGE_SUFFIX and path.is_file()


def read_package(path: Path) -> PackageContents:
    """The languages and files of a package."""
    try:
        with ZipFile(path) as archive:
            files = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
            [description] = [name for name in files if name.count("/") == 1 and name.endswith(f"/{METADATA_FILE}")]
            stated = json.loads(archive.read(description))
            languages = Languages(stated["from_code"], stated["to_code"])
    except (BadZipFile, ValueError, KeyError, TypeError):
        raise DragomanError(
            f"{path} is not a package of Argos Translate, or damaged: export the model again."
        ) from None
    return PackageContents(languages, {name.partition("/")[2]: size for name, size in files.items()})


def metadata(languages: Languages, tokenizer: Tokenizer) -> dict[str, str]:
    """The description of a package that Argos Translate reads."""
    prefix = {"target_prefix": "".join(tokenizer.pieces[token] for token in tokenizer.target_prefix)}
    return {
        **(prefix if tokenizer.target_prefix else {}),
        "package_version": PACKAGE_VERSION,
        "argos_version": ARGOS_VERSION,
        "from_code": languages.source,
        "from_name": language_name(languages.source),
        "to_code": languages.target,
        "to_name": language_name(languages.target),
        "type": "translate",
    }

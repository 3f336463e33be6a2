"""Folders of Hugging Face's transformers: their files, read with care, and every reason why one cannot be used."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError

CONFIG_FILE = "config.json"
FAMILIES = {"marian": "MarianMT, such as OPUS-MT", "m2m_100": "M2M100 and NLLB"}
"""Values of `model_type` that can be imported."""


def split_direction(model: Path) -> tuple[Languages | None, Path]:
    """The direction in front of a folder, as in `en-de=models/nllb`, and the folder.

    A model of many languages needs one. The two codes are separated as in `prepare --languages`.
    """
    text = str(model)
    direction, equals, folder = text.partition("=")
    codes = direction.split(":" if ":" in direction else "-")
    if equals and folder and not model.exists() and len(codes) == 2 and all(codes):
        return Languages(*codes), Path(folder)
    return None, model


def is_huggingface_folder(folder: Path) -> bool:
    """True if a folder has a configuration of transformers, for whatever kind of model."""
    try:
        content = json.loads((folder / CONFIG_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content


class UnusableFolderError(DragomanError):
    """All reasons why a model cannot be used, each with its remedy."""

    def __init__(self, what: str, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n  ".join([f"{what}:", *problems]))


class HuggingFaceFolder:
    """A folder of transformers, with the problems found in it so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def raise_problems(self) -> None:
        """Raise one error with all problems, if there are any."""
        if self.problems:
            raise UnusableFolderError(f"{self.path} cannot be used", list(dict.fromkeys(self.problems)))

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.read_json(CONFIG_FILE)

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        return self.read_json("generation_config.json", needed=False)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        return self.read_json("tokenizer_config.json", needed=False)

    @cached_property
    def family(self) -> str | None:
        """The kind of model, if it can be imported."""
        found = self.config.get("model_type")
        if isinstance(found, str) and found in FAMILIES:
            return found
        known = "; ".join(f"{name} ({about})" for name, about in FAMILIES.items())
        self.problems.append(f"{CONFIG_FILE}: model_type {found!r} cannot be imported: use a model of {known}")
        return None

    def integer(self, key: str, least: int, most: int) -> int | None:
        """A whole number of the configuration."""
        value = self.config.get(key, self.generation_config.get(key))
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        state = "is missing" if value is None else f"is {_short(value)}"
        self.problems.append(f"{CONFIG_FILE}: {key} {state}: it must be a whole number from {least:,} to {most:,}")
        return None

    def read_json(self, name: str, *, needed: bool = True) -> dict[str, Any]:
        """The object in a file; empty if there is none."""
        content = self.read_bytes(name, needed=needed)
        if content is None:
            return {}
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{name} is not valid JSON ({_short(error)}): copy it again")
            return {}
        if not isinstance(found, dict):
            self.problems.append(f"{name} is not a JSON object: copy it again")
            return {}
        return found

    def read_bytes(self, name: str, *, needed: bool = True) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            if needed:
                self.problems.append(f"{name} is missing: copy or download the whole folder")
        except OSError as error:
            self.problems.append(f"{name} cannot be read ({error.strerror}): copy it again")
        return None


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."

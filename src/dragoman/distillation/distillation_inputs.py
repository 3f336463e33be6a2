"""The inputs of a distillation: checked before anything is made, and recorded beside the result."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dragoman.corpus.dataset import DataSet
from dragoman.corpus.huggingface_folder import HuggingFaceFolder, split_direction
from dragoman.corpus.huggingface_tokenizer import read_tokenizer
from dragoman.corpus.sources import Languages
from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.pair_scoring import direction_problems
from dragoman.errors import DragomanError
from dragoman.files import read_json
from dragoman.pipeline import Overrides
from dragoman.recipe import Resolved, resolve, show_value
from dragoman.settings import MoneySettings
from dragoman.synthesis.synthesizer import weights_digest

_CHANGEABLE_SECTIONS = {"telemetry", "money"}
"""Settings that do not change the student: they may differ when a distillation is resumed."""


@dataclass(frozen=True)
class DistillationInputs:
    """What a distillation is made from."""

    teacher: str
    data: DataSet
    text: tuple[str, ...]
    """Files of source text beside the data set's."""
    recipe: str
    overrides: Overrides
    beam: int | None
    """Beam of the teacher; None for its own."""
    hosts: tuple[str, ...]
    """Other machines that translate."""
    workers: int | None
    score_back_with: str | None = None
    """Model of the other direction, which scores the teacher's translations."""

    @cached_property
    def resolved(self) -> Resolved:
        return resolve(self.recipe, self.overrides)

    @property
    def override_arguments(self) -> list[str]:
        """The overrides as a command takes them."""
        if isinstance(self.overrides, Mapping):
            return [f"{key}={show_value(value)}" for key, value in self.overrides.items()]
        return list(self.overrides)

    @property
    def cleaning_arguments(self) -> list[str]:
        """Those that also decide which of the teacher's translations are dropped."""
        return [override for override in self.override_arguments if override.startswith("cleaning.")]

    def check(self) -> None:
        """Raise one error with everything that would fail later."""
        problems = [f"--text {path} does not exist: check the path." for path in self.text if not Path(path).is_file()]
        if "valid" not in self.data.manifest.splits:
            problems.append(
                f"{self.data.path} has no validation set: prepare it with `--valid`, or with corpus.valid_pairs."
            )
        if self.resolved.settings.model.qk_norm:
            problems.append("model.qk_norm = true cannot be exported to CTranslate2: leave it out.")
        for check in (self._check_teacher, self._check_backward):
            try:
                problems += check()
            except DragomanError as error:
                problems.append(str(error))
        if problems:
            raise DragomanError("\n  ".join(problems))

    def _check_teacher(self) -> list[str]:
        languages = read_languages(self.teacher)
        if languages == self.data.languages:
            return []
        wanted, (_, folder) = self.data.languages.direction, split_direction(Path(self.teacher))
        remedy = "choose a teacher or a data set of the same direction"
        if not (find_model(Path(self.teacher)) / DESCRIPTION_FILE).exists():
            remedy += f", or put the direction in front, as in {wanted}={folder}, if the model knows it"
        return [f"{self.teacher} translates {languages.direction}, and {self.data.path} is {wanted}: {remedy}."]

    def _check_backward(self) -> list[str]:
        if self.score_back_with is None:
            return []
        found, wanted = read_languages(self.score_back_with), self.data.languages.reversed
        return direction_problems("--score-back-with", Path(self.score_back_with), found, wanted)

    def job(self) -> dict[str, Any]:
        """Everything that the student depends on, in a flat form, so that differences are short."""
        chosen = self.resolved.settings.model_dump(mode="json", exclude=_CHANGEABLE_SECTIONS)
        backward = self.score_back_with
        return {
            "teacher": weights_digest(find_model(Path(self.teacher))),
            "data": self.data.manifest.identity,
            "text": [[str(Path(path).resolve()), _digest(Path(path))] for path in self.text],
            "beam": self.beam,
            "score_back_with": backward and weights_digest(find_model(Path(backward))),
            **{f"{section}.{name}": value for section, values in chosen.items() for name, value in values.items()},
        }


def read_languages(model: str) -> Languages:
    """The direction of a model: the one that is stated in front of it, or that of its folder."""
    description = find_model(Path(model)) / DESCRIPTION_FILE
    if description.exists():
        return Languages(**read_json(description)["languages"])
    stated, path = split_direction(Path(model))
    folder = HuggingFaceFolder(path)
    read = read_tokenizer(folder, stated)
    folder.raise_problems()
    assert read is not None
    return read[1]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def cost_of(seconds: float, money: MoneySettings) -> float | None:
    """The price of this machine for a time; None if it is not known."""
    return seconds / 3600 * money.price_per_hour[0] if money.price_per_hour else None

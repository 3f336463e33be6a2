"""The model that a run begins with: its weights and architecture, and whether they fit the data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dragoman.corpus.dataset import DataSet
from dragoman.corpus.huggingface_folder import HuggingFaceFolder, UnusableFolderError, split_direction
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.model_languages import other_direction
from dragoman.corpus.sources import Languages
from dragoman.distributed.replica_drift import checksum
from dragoman.errors import DragomanError
from dragoman.model.model_folder import MODEL_FILE, ModelDescription, find_misfits, read_model
from dragoman.model.transformer import Transformer
from dragoman.settings import ModelSettings, ScheduleSettings, Settings

DROPOUTS = frozenset({"dropout", "attention_dropout", "activation_dropout"})
"""Model settings that belong to training: they come from the recipe, not from the model."""
BINARY_FILE = "model.bin"
"""In a CTranslate2 export; its weights cannot be trained."""
FORMATS = {"marian": "MarianMT", "m2m_100": "M2M100 or NLLB"}
"""Formats of imported models by their `model_type`."""


@dataclass(frozen=True)
class StartModel:
    """The model given with `train --from`."""

    path: Path
    """A model folder, which may have a direction in front: see `split_direction`."""
    given_settings: tuple[str, ...] = ()
    """Settings on the command line, as `section.name`."""

    def open(self, settings: Settings, data: DataSet) -> "StartWeights":
        """Read the model and check that it fits. One error lists all that does not."""
        if (self.path / BINARY_FILE).is_file():
            raise DragomanError(
                f"{self.path} is an export for CTranslate2, which cannot be trained: start from the run or checkpoint "
                "that it was made from."
            )
        problems: list[str] = self._unused_settings()
        description = None
        try:
            description, weights = read_model(self.path, data.languages)
        except UnusableFolderError as error:
            problems += error.problems
        if description is not None:
            problems += self._misfits(settings, description, data)
            problems += [f"weights: {misfit}" for misfit in find_misfits(weights, description.architecture)]
        if problems or description is None:
            raise UnusableFolderError(f"Training cannot start from {self.path}", problems)
        origin = {
            "model": str(self.path),
            "format": _find_format(self.path),
            "languages": description.languages.direction,
            "weights": _identify(weights),
        }
        return StartWeights(weights, origin, _fine_tuning_settings(settings, description))

    def _unused_settings(self) -> list[str]:
        return [
            f"{key} has no effect with --from: set fine_tuning.learning_rate, fine_tuning.policy or "
            "fine_tuning.warmup_fraction instead"
            for key in self.given_settings
            if key.startswith("schedule.")
        ]

    def _misfits(self, settings: Settings, description: ModelDescription, data: DataSet) -> list[str]:
        architecture, tokenizer, languages = description.architecture, description.tokenizer, description.languages
        problems = []
        for key in self.given_settings:
            section, _, name = key.partition(".")
            if section == "model" and name not in DROPOUTS:
                wanted, found = getattr(settings.model, name), getattr(architecture, name)
                if wanted != found:
                    problems.append(f"{key} = {wanted}, but the model has {found}: leave it out")
        if _translates_otherwise(description, data.languages):
            problems.append(
                f"the model translates {languages.direction}, but the data set is {data.languages.direction}: prepare "
                "one of that direction"
            )
        if not tokenizer.encodes_like(data.tokenizer):
            problems.append(f"the data set has another tokenizer: prepare it again with `--tokenizer {self.path}`")
        elif architecture.vocabulary != tokenizer.padded_vocab_size:
            problems.append(
                f"the model has {architecture.vocabulary:,} rows for {tokenizer.padded_vocab_size:,} of its tokenizer: "
                "take the tokenizer that belongs to it"
            )
        return problems


@dataclass(frozen=True)
class StartWeights:
    """Weights to begin with, under our names, and the settings to train them with."""

    weights: dict[str, Tensor]
    origin: Mapping[str, str]
    """See `RunStarted.start`."""
    settings: Settings

    @property
    def identity(self) -> str:
        """A checksum of all weights: equal on all workers."""
        return self.origin["weights"]

    def move_into(self, model: Transformer) -> None:
        """Load the weights and forget them: a copy would take memory during the whole run."""
        model.load_state_dict(self.weights)
        self.weights.clear()


def _translates_otherwise(description: ModelDescription, wanted: Languages) -> bool:
    found = description.languages
    if description.tokenizer.target_prefix:  # Named by the model's own codes, such as ckb_Arab for data of ku.
        return other_direction(found, wanted)
    return not (same_language(found.source, wanted.source) and same_language(found.target, wanted.target))


def _find_format(model: Path) -> str:
    _, folder = split_direction(model)
    return "Dragoman" if (folder / MODEL_FILE).exists() else FORMATS[HuggingFaceFolder(folder).config["model_type"]]


def _identify(weights: Mapping[str, Tensor]) -> str:
    return f"{int(checksum([weights[name] for name in sorted(weights)])) % 2**64:016x}"


def _fine_tuning_settings(settings: Settings, description: ModelDescription) -> Settings:
    """The architecture of the model, a schedule for fine-tuning, and everything else as it is."""
    kept = {name: getattr(settings.model, name) for name in DROPOUTS}
    model = ModelSettings(**{**description.architecture.model_dump(exclude={"vocabulary"}), **kept})
    chosen = settings.fine_tuning
    schedule = ScheduleSettings(
        policy=chosen.policy,
        learning_rate=chosen.learning_rate,
        warmup_steps=round(chosen.warmup_fraction * settings.training.steps),
        decay_fraction=settings.schedule.decay_fraction,
    )
    return settings.model_copy(update={"model": model, "schedule": schedule})

"""Translations of the validation set that a run keeps, so that runs can be compared without their models."""

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json


@dataclass(frozen=True)
class KeptTranslations:
    """All translations of one evaluation, with their references."""

    step: int
    bleu: float
    language: str
    """Language of the translations."""
    references: tuple[str, ...]
    translations: tuple[str, ...]


@dataclass(frozen=True)
class TranslationStore:
    """The folder `translations` of a run: one file for each checkpoint whose translations are kept."""

    folder: Path

    def read(self, checkpoint: str) -> KeptTranslations | None:
        """The translations by a checkpoint, such as `best-bleu`; None if there are none, or the file is damaged."""
        try:
            content = read_json(self._path(checkpoint))
            lines = {side: tuple(content[side]) for side in ("references", "translations")}
            return KeptTranslations(**{**content, **lines})
        except (DragomanError, OSError, KeyError, TypeError):
            return None

    def keep(self, checkpoint: str, translations: KeptTranslations) -> None:
        """Replace the translations by a checkpoint. A full disk must not stop training."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            write_json(self._path(checkpoint), asdict(translations))

    def keep_best(self, checkpoint: str, translations: KeptTranslations) -> None:
        """Keep them unless those of an earlier step are better. Those of a later step were undone by going back."""
        earlier = self.read(checkpoint)
        if earlier is None or earlier.step >= translations.step or earlier.bleu < translations.bleu:
            self.keep(checkpoint, translations)

    def _path(self, checkpoint: str) -> Path:
        return self.folder / f"{checkpoint}.json"

"""Translations of the test set by the systems of a distillation, kept on disk: none is made twice."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.translator_loading import load
from dragoman.files import read_json, write_json
from dragoman.progress_callback import Progress
from dragoman.synthesis.synthesizer import weights_digest


@dataclass(frozen=True)
class TestTranslations:
    """What a system made of the test set, and the time that it took."""

    lines: list[str]
    seconds: float


class KeptTestTranslations:
    """A folder of translations, each under the name of its system and a hash of weights, settings and text."""

    def __init__(self, folder: Path, sources: Sequence[str], progress: Progress) -> None:
        self._folder, self._sources, self._progress = folder, sources, progress

    def of(self, system: str, model: Path, device: str | None = None, **decoding: Any) -> TestTranslations:
        """The translations by a model, with these decoding settings in place of its own."""
        facts = {"weights": weights_digest(find_model(model)), "decoding": decoding, "sources": list(self._sources)}
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
        path = self._folder / f"{system.replace(' ', '-')}-{key}.json"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            lines, seconds = self._translate(system, load(model, device, **decoding))
            write_json(path, {"seconds": seconds, "translations": lines})
        content = read_json(path)
        return TestTranslations(content["translations"], content["seconds"])

    def _translate(self, system: str, translator: LineTranslator) -> tuple[list[str], float]:
        started_s = time.monotonic()
        lines: list[str] = []
        for translation in translator.translate_stream(self._sources):
            lines.append(translation.text)
            self._progress(f"Translating the test set: {system}", len(lines), len(self._sources))
        return lines, time.monotonic() - started_s

"""Synthetic runs in folders, to compare."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.events import Event
from dragoman.insight.compared_run import ComparedRun, open_compared_run
from dragoman.insight.run_history import build_history
from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore

from .synthetic_runs import PRICED, REFERENCES, synthetic_run

OpenRun = Callable[..., ComparedRun]


@pytest.fixture
def open_run(tmp_path) -> OpenRun:
    """Opens a synthetic run whose best evaluation has this BLEU, and keeps translations unless there are none."""

    def open_run(
        name: str, bleu: float = 20.0, references: tuple[str, ...] | None = REFERENCES, **changes
    ) -> ComparedRun:
        steps = changes.get("steps", 400)
        recorded = synthetic_run(**{"bleu": lambda step: bleu - (steps - step) / 100, "overrides": PRICED, **changes})
        return opened(tmp_path / name, recorded, bleu, references)

    return open_run


def opened(path: Path, recorded: list[Event], bleu: float, references: tuple[str, ...] | None) -> ComparedRun:
    history = build_history(recorded)
    path.mkdir(exist_ok=True)
    run = open_compared_run(path.name, path, history, history.session_spans_s[-1][1])
    if references is not None:
        kept = KeptTranslations(history.evaluations[-1].step, bleu, "de", references, references)
        TranslationStore(path / "translations").keep("best-bleu", kept)
    return run

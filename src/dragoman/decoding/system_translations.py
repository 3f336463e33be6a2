"""Translations of the systems that a score or a comparison is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.dataset import DataSet, Split
from dragoman.corpus.line_formats import evaluation_lines
from dragoman.decoding.translator_loading import load
from dragoman.errors import DragomanError
from dragoman.progress_callback import Progress

SPLITS: tuple[Split, ...] = ("test", "valid")


@dataclass(frozen=True)
class EvaluationText:
    """The text that systems are scored on."""

    sources: list[str] | None
    """None if only references were given: enough for files of translations."""
    references: list[str]

    @classmethod
    def from_files(cls, source: Path | None, reference: Path) -> "EvaluationText":
        sources, references = None if source is None else _read_lines(source), _read_lines(reference)
        if sources is not None and len(sources) != len(references):
            raise DragomanError(
                f"--src has {len(sources):,} lines, --ref {len(references):,}: give files of equal length."
            )
        return cls(sources, references)

    @classmethod
    def from_dataset(cls, data: Path, split: str) -> "EvaluationText":
        chosen = next((known for known in SPLITS if known == split), None)
        if chosen is None:
            raise DragomanError(f"--split {split} is not known: use {' or '.join(SPLITS)}.")
        dataset = DataSet(data)
        if chosen == "test" and "test" not in dataset.manifest.splits and "valid" in dataset.manifest.splits:
            raise DragomanError(f"{data} has no test set: score the validation set with `--split valid`.")
        dataset.pairs(chosen)  # Raises an error that explains itself if the split does not exist.
        return cls(*dataset.text(chosen))


def system_outputs(systems: Sequence[str], text: EvaluationText, progress: Progress) -> list[list[str]]:
    """The translations of each system, which is a file of translations or a model."""
    outputs = [_translations(system, text.sources, progress) for system in systems]
    for system, output in zip(systems, outputs, strict=True):
        if len(output) != len(text.references):
            raise DragomanError(
                f"{system} has {len(output):,} lines, the references {len(text.references):,}: "
                "give files of equal length."
            )
    return outputs


def _translations(system: str, sources: list[str] | None, progress: Progress) -> list[str]:
    if Path(system).is_file():
        return _read_lines(Path(system))
    translator = load(system)
    if sources is None:
        raise DragomanError(f"{system} is a model and needs text to translate: give --src FILE or --data DATA.")
    output = []
    for translation in translator.translate_stream(sources):
        output.append(translation.text)
        progress(f"Translating with {system}", len(output), len(sources))
    return output


def _read_lines(path: Path) -> list[str]:
    return list(evaluation_lines(path))

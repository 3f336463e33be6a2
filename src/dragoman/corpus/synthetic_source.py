"""The folder that `dragoman synthesize` made, as a source of pairs."""

from dataclasses import dataclass
from pathlib import Path

from dragoman.files import read_json
from dragoman.run_folder import SYNTHESIS_FILE


@dataclass(frozen=True)
class SyntheticFiles:
    """The two sides of a synthetic corpus, and what its description states about them."""

    paths: tuple[Path, Path]
    """Source side first."""
    languages: tuple[str, str]
    synthetic: str
    """Language of the side that a model wrote."""


def find_synthetic_files(folder: Path) -> SyntheticFiles | None:
    """The corpus of a synthesis; None if a folder is no synthesis. Raises ValueError if it has no corpus yet."""
    if not (folder / SYNTHESIS_FILE).is_file():
        return None
    corpus = read_json(folder / SYNTHESIS_FILE).get("corpus")
    if not corpus or not {"source", "target", "synthetic"} <= corpus.keys():
        raise ValueError(f"{folder}: its synthesis is not finished: run the same `dragoman synthesize` again")
    languages = corpus["source"], corpus["target"]
    source, target = (folder / f"corpus.{language}" for language in languages)
    return SyntheticFiles((source, target), languages, corpus["synthetic"])

"""Evaluation sets: text with references that a model is evaluated on, besides the validation set of its data."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.block_tasks import encode_pairs
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.line_formats import evaluation_lines
from dragoman.corpus.shards import Pairs
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError

EXAMPLE = "write NAME=SOURCE,REFERENCE, such as news=news.en,news.de"


@dataclass(frozen=True)
class EvaluationFiles:
    """The files of an evaluation set, and its name."""

    name: str
    source: Path
    reference: Path


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with references, as text and as tokens."""

    name: str
    sources: Sequence[str]
    references: Sequence[str]
    pairs: Pairs

    @classmethod
    def validation(cls, data: DataSet) -> "EvaluationSet":
        """The validation set of a data set."""
        return cls("valid", *data.text("valid"), data.pairs("valid"))

    @property
    def identity(self) -> str:
        """A hash of the text."""
        return hashlib.sha256("\n".join([*self.sources, "", *self.references]).encode()).hexdigest()


def parse_evaluation(argument: str) -> EvaluationFiles:
    """Parse `NAME=SOURCE,REFERENCE`."""
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]{0,19})=([^,]+),([^,]+)", argument)
    if match is None:
        raise DragomanError(f"--also-evaluate {argument} is not understood: {EXAMPLE}; a name has up to 20 letters.")
    return EvaluationFiles(match[1], Path(match[2]), Path(match[3]))


def read_evaluation_sets(arguments: Sequence[str], tokenizer: Tokenizer) -> list[EvaluationSet]:
    """Read the sets of `--also-evaluate`. Raises one error with all problems."""
    found: list[EvaluationSet] = []
    problems: list[str] = []
    for argument in arguments:
        try:
            files = parse_evaluation(argument)
            if files.name in {"valid", *(each.name for each in found)}:
                raise DragomanError(f"--also-evaluate {argument}: {files.name} is taken: choose another name.")
            found.append(_read(files, tokenizer))
        except DragomanError as error:
            problems.append(str(error))
    if problems:
        raise DragomanError("\n  ".join(problems))
    return found


def _read(files: EvaluationFiles, tokenizer: Tokenizer) -> EvaluationSet:
    sources, references = (_read_lines(path, files.name) for path in (files.source, files.reference))
    if len(sources) != len(references):
        raise DragomanError(
            f"--also-evaluate {files.name}: {files.source} has {len(sources):,} lines, {files.reference} "
            f"{len(references):,}: give a reference for each line."
        )
    tokens, lengths = encode_pairs(tokenizer, list(zip(sources, references, strict=True)))
    return EvaluationSet(files.name, sources, references, Pairs.in_memory(tokens, lengths))


def _read_lines(path: Path, name: str) -> list[str]:
    try:
        lines = list(evaluation_lines(path))
    except DragomanError as error:
        raise DragomanError(f"--also-evaluate {name}: {error}.") from None
    if not lines:
        raise DragomanError(f"--also-evaluate {name}: {path} is empty: give a file with one sentence per line.")
    return [line.replace("\r", " ") for line in lines]

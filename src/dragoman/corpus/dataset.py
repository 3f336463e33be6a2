"""A prepared data set: manifest, tokenizer and splits.

```
DATA/
  manifest.json               contents of the data set; written last, so a folder that has one is complete
  tokenizer.model             SentencePiece model
  train/ valid/ test/         shards (see shards.py)
  job.json                    inputs and settings, to recognise a finished data set
  valid.en valid.de ...       text of the validation and test sets, one sentence per line, for scoring
```
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dragoman.corpus.shards import Pairs
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.files import read_json
from dragoman.text_lines import read_text_lines

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.model"
JOB_FILE = "job.json"
"""Inputs and settings of the preparation, to recognise a finished data set."""
FORMAT = 1
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class TextCounts:
    """Counts of pairs, of bytes (both sides together), and of tokens per side (with EOS)."""

    pairs: int = 0
    text_bytes: int = 0
    source_tokens: int = 0
    target_tokens: int = 0

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(
            self.pairs + other.pairs,
            self.text_bytes + other.text_bytes,
            self.source_tokens + other.source_tokens,
            self.target_tokens + other.target_tokens,
        )


@dataclass(frozen=True)
class RuleReport:
    """The pairs of one source that a cleaning rule changed or dropped."""

    pairs: int
    samples: Sequence[Sequence[str]]


@dataclass(frozen=True)
class SourceReport:
    """One source of training pairs, before and after cleaning."""

    name: str
    files: Sequence[str]
    format: str
    weight: float
    licence: str
    before: TextCounts
    after: TextCounts
    held_out: int
    """Pairs that were moved to the validation or test set."""
    rules: Mapping[str, RuleReport]
    synthetic: str = ""
    """The language of the side that a model wrote, if it is known."""


@dataclass(frozen=True)
class FileReport:
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of a data set. It contains no timestamps: equal inputs give equal bytes."""

    name: str
    identity: str
    """Hash over all files: data sets with the same identity are equal."""
    languages: Languages
    pieces: int
    """Vocabulary size."""
    token_dtype: str
    splits: Mapping[str, TextCounts]
    """Counts as written: train after cleaning, augmentation and weighting."""
    sources: Sequence[SourceReport]
    evaluation_sources: Mapping[str, Sequence[str]]
    """The sources of the validation and test sets."""
    files: Mapping[str, FileReport]
    settings: Mapping[str, Any]
    dragoman: str
    format: int = field(default=FORMAT)
    min_score: float | None = None
    """Score below which pairs were dropped, if models scored them."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> "Manifest":
        sources = [
            SourceReport(
                **{
                    **source,
                    "before": TextCounts(**source["before"]),
                    "after": TextCounts(**source["after"]),
                    "rules": {name: RuleReport(**rule) for name, rule in source["rules"].items()},
                }
            )
            for source in content["sources"]
        ]
        return cls(
            **{
                **content,
                "languages": Languages(**content["languages"]),
                "splits": {name: TextCounts(**counts) for name, counts in content["splits"].items()},
                "sources": sources,
                "files": {name: FileReport(**report) for name, report in content["files"].items()},
            }
        )


def compute_identity(files: Mapping[str, FileReport]) -> str:
    """The hash that identifies a data set, from the hashes of its files."""
    listing = "".join(f"{name} {files[name].sha256}\n" for name in sorted(files))
    return hashlib.sha256(listing.encode()).hexdigest()


class DataSet:
    """A data set on disk; opening it reads only the manifest."""

    def __init__(self, path: Path) -> None:
        if not (path / MANIFEST_FILE).is_file():
            raise DragomanError(
                f"{path} is not a prepared data set: create one with `dragoman prepare ... --out DATA`."
            )
        content = read_json(path / MANIFEST_FILE)
        try:
            if content["format"] != FORMAT:
                raise DragomanError(
                    f"{path} has format {content['format']}, but this version reads format {FORMAT}: prepare it again."
                )
            self.manifest = Manifest.from_json(content)
        except (KeyError, TypeError, AttributeError):
            raise DragomanError(f"{path / MANIFEST_FILE} is damaged: prepare the data set again.") from None
        self.path = path

    @property
    def languages(self) -> Languages:
        return self.manifest.languages

    @property
    def arguments(self) -> list[str]:
        """Arguments of `--data` that open it, from any folder."""
        return [str(self.path.resolve())]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / TOKENIZER_FILE)

    def pairs(self, split: Split) -> Pairs:
        if split not in self.manifest.splits:
            raise DragomanError(
                f"{self.path} has no {split} set: prepare it again with `--{split}` or with corpus.{split}_pairs."
            )
        return Pairs.open(self.path / split, np.dtype(self.manifest.token_dtype))

    def text(self, split: Split) -> tuple[list[str], list[str]]:
        """Source and reference sentences of a validation or test set."""
        sides = text_files(self.path, split, self.languages)
        source, reference = (read_text_lines(side) for side in sides)
        pairs = self.manifest.splits[split].pairs
        if not len(source) == len(reference) == pairs:
            raise DragomanError(
                f"{sides[0]} has {len(source):,} lines and {sides[1].name} {len(reference):,}, but the manifest states "
                f"{pairs:,} pairs: prepare the data set again."
            )
        return source, reference


def text_files(folder: Path, split: str, languages: Languages) -> tuple[Path, Path]:
    """Paths of the text of a validation or test set."""
    return folder / f"{split}.{languages.source}", folder / f"{split}.{languages.target}"

"""A prepared data set: its manifest, its tokenizer, its splits.

```
DATA/
  manifest.json               what it is made of: written last, so that a folder with one is whole
  tokenizer.model             SentencePiece
  train/ valid/ test/         shards (see shards.py)
  valid.en valid.de ...       the text of validation and test sets, line by line, to score against
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

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.model"
FORMAT = 1
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Volume:
    """How much text: both sides together in bytes, each side apart in tokens (end marks included)."""

    pairs: int = 0
    text_bytes: int = 0
    source_tokens: int = 0
    target_tokens: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(
            self.pairs + other.pairs,
            self.text_bytes + other.text_bytes,
            self.source_tokens + other.source_tokens,
            self.target_tokens + other.target_tokens,
        )


@dataclass(frozen=True)
class RuleReport:
    """What a cleaning rule did to one source."""

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
    before: Volume
    after: Volume
    held_out: int
    """Pairs that went into the validation or test set instead."""
    rules: Mapping[str, RuleReport]


@dataclass(frozen=True)
class FileReport:
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything about a data set that is worth knowing. It holds no times: equal inputs give equal bytes."""

    name: str
    identity: str
    """Hash over all files: two data sets with the same identity are the same."""
    languages: Languages
    pieces: int
    """Size of the vocabulary."""
    token_dtype: str
    splits: Mapping[str, Volume]
    """As written: train after cleaning and weighting."""
    sources: Sequence[SourceReport]
    evaluation_sources: Mapping[str, Sequence[str]]
    """Where validation and test set come from."""
    files: Mapping[str, FileReport]
    settings: Mapping[str, Any]
    dragoman: str
    format: int = field(default=FORMAT)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> "Manifest":
        sources = [
            SourceReport(
                **{
                    **source,
                    "before": Volume(**source["before"]),
                    "after": Volume(**source["after"]),
                    "rules": {name: RuleReport(**rule) for name, rule in source["rules"].items()},
                }
            )
            for source in content["sources"]
        ]
        return cls(
            **{
                **content,
                "languages": Languages(**content["languages"]),
                "splits": {name: Volume(**volume) for name, volume in content["splits"].items()},
                "sources": sources,
                "files": {name: FileReport(**report) for name, report in content["files"].items()},
            }
        )


def identify(files: Mapping[str, FileReport]) -> str:
    """The hash that names a data set, from the hashes of its files."""
    listing = "".join(f"{name} {files[name].sha256}\n" for name in sorted(files))
    return hashlib.sha256(listing.encode()).hexdigest()


class DataSet:
    """A data set on disk, opened without reading it."""

    def __init__(self, path: Path) -> None:
        if not (path / MANIFEST_FILE).is_file():
            raise DragomanError(
                f"{path} is not a prepared data set: make one with `dragoman prepare ... --out DATA`, and give that."
            )
        content = read_json(path / MANIFEST_FILE)
        try:
            if content["format"] != FORMAT:
                raise DragomanError(
                    f"{path} has format {content['format']}, this version reads {FORMAT}: prepare it again."
                )
            self.manifest = Manifest.from_json(content)
        except (KeyError, TypeError, AttributeError):
            raise DragomanError(f"{path / MANIFEST_FILE} is damaged: prepare the data set again.") from None
        self.path = path

    @property
    def languages(self) -> Languages:
        return self.manifest.languages

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / TOKENIZER_FILE)

    def pairs(self, split: Split) -> Pairs:
        if split not in self.manifest.splits:
            raise DragomanError(
                f"{self.path} has no {split} set: name one with `--{split}`, or set corpus.{split}_pairs, in prepare."
            )
        return Pairs(self.path / split, np.dtype(self.manifest.token_dtype))

    def text(self, split: Split) -> tuple[list[str], list[str]]:
        """Source and reference lines of a validation or test set."""
        sides = text_files(self.path, split, self.languages)
        source, reference = (side.read_text(encoding="utf-8").split("\n")[:-1] for side in sides)
        return source, reference


def text_files(folder: Path, split: str, languages: Languages) -> tuple[Path, Path]:
    """Where the text of a validation or test set lies."""
    return folder / f"{split}.{languages.source}", folder / f"{split}.{languages.target}"

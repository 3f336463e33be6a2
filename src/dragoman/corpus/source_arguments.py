"""Source arguments of the command line: files, weights, and the formats and languages that file names imply."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.language_codes import code_at_end, codes_that_differ, direction_in
from dragoman.corpus.synthetic_source import find_synthetic_files

FORMATS = ("lines", "tsv", "csv", "jsonl", "tmx", "xliff", "po", "mo", "sgm", "tags")

TWO_FILE_FORMATS = frozenset({"lines", "sgm", "tags"})
"""Formats with one file per side; the others hold both sides in one file."""

_FORMAT_OF_SUFFIX = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".po": "po",
    ".mo": "mo",
    ".gmo": "mo",
    ".sgm": "sgm",
    ".sgml": "sgm",
    ".xml": "sgm",
}
_COMPRESSION_SUFFIX = re.compile(r"\.(?:gz|xz|bz2|zst|zstd)$", re.IGNORECASE)
STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class SourceArgument:
    """The files of one argument, or of two arguments that name the two sides of a corpus."""

    paths: tuple[Path, ...]
    weight: float | None = None
    joined: bool = False
    """True if two arguments were combined because only a language code differs."""
    folder: Path | None = None
    """The folder that `dragoman synthesize` made, if one is given instead of its files."""
    stated_languages: tuple[str, str] | None = None
    """The languages that such a folder states."""
    synthetic: str = ""
    """The language of the side that a model wrote, if such a folder states it."""

    def __str__(self) -> str:
        return ",".join(map(str, self.paths))

    @property
    def languages(self) -> tuple[str, str] | None:
        """The source and target codes, if they are stated or the names contain both."""
        return self.stated_languages or languages_from_names(self.paths)

    @property
    def name(self) -> str:
        """A short name for the source."""
        return source_name(self.paths) if self.folder is None else self.folder.absolute().name


def parse_argument(argument: str) -> SourceArgument:
    """Parse `PATH` or `SOURCE,TARGET`, with optional `@WEIGHT`. The path of a synthesis stands for its two files."""
    parsed = _parse(argument)
    (folder, *others) = parsed.paths
    if others or not _exists(str(folder)) or (found := find_synthetic_files(folder)) is None:
        return parsed
    return SourceArgument(
        found.paths, parsed.weight, folder=folder, stated_languages=found.languages, synthetic=found.synthetic
    )


def _parse(argument: str) -> SourceArgument:
    """An existing file of that name is preferred."""
    if argument == "-" or _exists(argument):
        return SourceArgument((Path(argument),))
    paths, at, weight_text = argument.rpartition("@")
    if not at or "/" in weight_text or "," in weight_text:
        return SourceArgument(_split_at_comma(argument))
    try:
        weight = float(weight_text)
    except ValueError:
        raise ValueError(
            f"{argument}: the file does not exist, and {weight_text!r} is not a weight: check the path, "
            "or write a number after @"
        ) from None
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(
            f"{argument}: the weight {weight_text} is not a finite number above 0: use for example @2 or @0.5"
        )
    return SourceArgument(_split_at_comma(paths), weight)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # Two long names joined by a comma may exceed the limit for one name.
        return False


def _split_at_comma(text: str) -> tuple[Path, ...]:
    if "," not in text or _exists(text):
        return (Path(text),)
    parts = text.split(",")
    splits = [(Path(",".join(parts[:i])), Path(",".join(parts[i:]))) for i in range(1, len(parts))]
    candidates = [split for split in splits if all(_exists(str(path)) for path in split)] or splits
    if "" in parts or len(candidates) > 1:
        raise ValueError(f"{text}: two aligned files are given as SOURCE,TARGET: write two names with one comma")
    return candidates[0]


def join_sides(arguments: Sequence[SourceArgument], format: str | None) -> list[SourceArgument]:
    """Combine two consecutive arguments if their names differ only in a language code."""
    joined: list[SourceArgument] = []
    for argument in arguments:
        previous = joined[-1] if joined else None
        if previous and _are_sides(previous, argument, format):
            weight = previous.weight if argument.weight is None else argument.weight
            joined[-1] = SourceArgument((*previous.paths, *argument.paths), weight, joined=True)
        else:
            joined.append(argument)
    return joined


def _are_sides(first: SourceArgument, second: SourceArgument, format: str | None) -> bool:
    paths = (*first.paths, *second.paths)
    if len(first.paths) != 1 or len(second.paths) != 1 or len({first.weight, second.weight} - {None}) > 1:
        return False
    if (format or format_from_names(paths)) not in TWO_FILE_FORMATS:
        return False
    return codes_that_differ(*map(_without_compression, paths)) is not None


def languages_from_names(paths: tuple[Path, ...]) -> tuple[str, str] | None:
    """The source and target codes, if the names contain both."""
    names = [_without_compression(path) for path in paths]
    if len(names) == 1:
        return direction_in(Path(names[0]).name)
    if codes := codes_that_differ(*names):
        return codes
    source, target = (code_at_end(_without_format(name)) for name in names)
    return (source, target) if source and target and source != target else None


def format_from_names(paths: tuple[Path, ...]) -> str | None:
    """The format that the file names imply, or None. Compression suffixes are ignored."""
    if paths == (STANDARD_INPUT,):
        return "tsv"
    formats = {_FORMAT_OF_SUFFIX.get(Path(_without_compression(path)).suffix.lower()) for path in paths}
    if formats != {None}:
        return next(format for format in formats if format)
    if len(paths) == 1:
        return None
    return "tags" if all(".tags." in path.name for path in paths) else "lines"


def unknown_format_problem(path: Path) -> str:
    """The error message for a file whose name implies no format."""
    if code_at_end(_without_compression(path)):
        return f"{path}: the name is that of one side of a corpus: give both sides, as {path},OTHER"
    return f"{path}: the name does not imply a format: rename it, or choose one of {', '.join(FORMATS)} with --format"


def _without_compression(path: Path) -> str:
    return _COMPRESSION_SUFFIX.sub("", path.as_posix())


def _without_format(name: str) -> str:
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in {*_FORMAT_OF_SUFFIX, ".txt"} else name


def source_name(paths: tuple[Path, ...]) -> str:
    """A short name for a source: the file name without format, compression and language."""
    if paths == (STANDARD_INPUT,):
        return "standard-input"
    names = [_without_format(Path(_without_compression(path)).name) for path in paths]
    code = code_at_end(names[0]) if len(names) == 2 else None
    return names[0][: len(names[0]) - len(code or "")].rstrip("._-") or names[0]

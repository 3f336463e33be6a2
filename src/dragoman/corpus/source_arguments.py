"""Words on the command line: which files they name, and what the names of the files tell."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.language_codes import code_at_end, codes_that_differ, direction_in

FORMATS = ("lines", "tsv", "jsonl", "tmx", "po", "mo", "sgm", "tags")

TWO_FILE_FORMATS = frozenset({"lines", "sgm", "tags"})
"""One file a side; the others hold both sides in one file."""

_FORMAT_OF_SUFFIX = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tmx": "tmx",
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
    """What one argument names, or two that belong together."""

    paths: tuple[Path, ...]
    weight: float | None = None
    joined: bool = False
    """Whether two arguments were taken for the sides of one corpus."""

    def __str__(self) -> str:
        return ",".join(map(str, self.paths))


def parse_word(argument: str) -> SourceArgument:
    """A comma and an @ have a meaning only where no file is named so."""
    if argument == "-" or _exists(argument):
        return SourceArgument((Path(argument),))
    stem, at, tail = argument.rpartition("@")
    if not at or "/" in tail or "," in tail:
        return SourceArgument(_split_at_comma(argument))
    try:
        weight = float(tail)
    except ValueError:
        raise ValueError(
            f"{argument}: no such file, and {tail!r} is no weight: check the path, or give a number"
        ) from None
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{argument}: the weight {tail} is not a finite number above 0: write @2 or @0.5, say")
    return SourceArgument(_split_at_comma(stem), weight)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # two long names and a comma may be too long for one
        return False


def _split_at_comma(text: str) -> tuple[Path, ...]:
    if "," not in text or _exists(text):
        return (Path(text),)
    parts = text.split(",")
    splits = [(Path(",".join(parts[:i])), Path(",".join(parts[i:]))) for i in range(1, len(parts))]
    fitting = [split for split in splits if all(_exists(str(path)) for path in split)] or splits
    if "" in parts or len(fitting) > 1:
        raise ValueError(f"{text}: a pair of files is SOURCE,TARGET: give two names with one comma between")
    return fitting[0]


def join_sides(words: Sequence[SourceArgument], format: str | None) -> list[SourceArgument]:
    """Take neighbours for one corpus where only a language code tells their names apart."""
    joined: list[SourceArgument] = []
    for word in words:
        before = joined[-1] if joined else None
        if before and _are_sides(before, word, format):
            weight = before.weight if word.weight is None else word.weight
            joined[-1] = SourceArgument((*before.paths, *word.paths), weight, joined=True)
        else:
            joined.append(word)
    return joined


def _are_sides(first: SourceArgument, second: SourceArgument, format: str | None) -> bool:
    paths = (*first.paths, *second.paths)
    if len(first.paths) != 1 or len(second.paths) != 1 or len({first.weight, second.weight} - {None}) > 1:
        return False
    return (format or format_of(paths)) in TWO_FILE_FORMATS and codes_that_differ(*map(plain_name, paths)) is not None


def codes_in(paths: tuple[Path, ...]) -> tuple[str, str] | None:
    """The codes of source and target, if the names tell both."""
    names = [plain_name(path) for path in paths]
    if len(names) == 1:
        return direction_in(Path(names[0]).name)
    if codes := codes_that_differ(*names):
        return codes
    source, target = (code_at_end(_without_format(name)) for name in names)
    return (source, target) if source and target and source != target else None


def format_of(paths: tuple[Path, ...]) -> str | None:
    """By the names, less what tells the compression; None where they tell nothing."""
    if paths == (STANDARD_INPUT,):
        return "tsv"
    kinds = {_FORMAT_OF_SUFFIX.get(Path(plain_name(path)).suffix.lower()) for path in paths}
    if kinds != {None}:
        return next(kind for kind in kinds if kind)
    if len(paths) == 1:
        return None
    return "tags" if all(".tags." in path.name for path in paths) else "lines"


def cannot_tell(path: Path) -> str:
    """What to say of a file without a format."""
    if code_at_end(plain_name(path)):
        return f"{path}: is one side of a corpus by its name: give both sides, as {path},OTHER"
    return f"{path}: the name does not tell the format: choose one of {', '.join(FORMATS)}"


def plain_name(path: Path) -> str:
    """The path without what tells the compression."""
    return _COMPRESSION_SUFFIX.sub("", path.as_posix())


def _without_format(name: str) -> str:
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in {*_FORMAT_OF_SUFFIX, ".txt"} else name


def name_of(paths: tuple[Path, ...]) -> str:
    """What to call a source: its file's name, less format, compression and language."""
    if paths == (STANDARD_INPUT,):
        return "standard-input"
    names = [_without_format(Path(plain_name(path)).name) for path in paths]
    code = code_at_end(names[0]) if len(names) == 2 else None
    return names[0][: len(names[0]) - len(code or "")].rstrip("._-") or names[0]

"""Corpus descriptions: TOML files that state the parts of a corpus and where to get them.

A description names the languages and the entries of `train`, `valid` and `test`. An entry has one of

- `url`: one file, an archive with `members`, or two files (source side first);
- `files`: paths relative to the TOML file;
- `generator`: generated text.

A corpus with many language pairs has no `source` and `target`. Its entries list their `pairs`, and `{pair}`, `{first}`
and `{second}` are replaced by the requested one.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.corpus.dataset import SPLITS
from dragoman.corpus.download_cache import RemoteFile, local_path
from dragoman.corpus.source_arguments import FORMATS, TWO_FILE_FORMATS
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError, DownloadError

GENERATORS = ("demo",)
ARCHIVE_SUFFIXES = (".tgz", ".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst", ".zip")
_CORPUS_KEYS = ("name", "about", "source", "target", *SPLITS)
_ENTRY_KEYS = (
    *("name", "format", "licence", "weight", "pairs", "url", "size", "sha256", "md5"),
    *("members", "files", "generator", "sentences", "seed"),
)
_LIST_KEYS = ("url", "sha256", "md5", "members", "files", "pairs")
_PATTERNS = {"sha256": re.compile(r"[0-9a-f]{64}"), "md5": re.compile(r"[0-9a-f]{32}"), "pairs": re.compile(r"\w+-\w+")}


@dataclass(frozen=True)
class CorpusEntry:
    """One part of a corpus."""

    name: str
    format: str
    pairs: tuple[Languages, ...]
    licence: str = "not stated"
    weight: float = 1.0
    remotes: tuple[RemoteFile, ...] = ()
    members: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    generator: str | None = None
    sentences: int = 0
    seed: int = 1

    def for_pair(self, pair: Languages) -> "CorpusEntry":
        """The entry with its placeholders replaced by one language pair."""

        def fill(text: str) -> str:
            for key, value in (("{pair}", pair.direction), ("{first}", pair.source), ("{second}", pair.target)):
                text = text.replace(key, value)
            return text

        return replace(
            self,
            name=fill(self.name),
            remotes=tuple(replace(remote, url=fill(remote.url)) for remote in self.remotes),
            members=tuple(map(fill, self.members)),
            files=tuple(map(fill, self.files)),
        )


@dataclass(frozen=True)
class CorpusDescription:
    """A corpus that can be fetched."""

    name: str
    about: str
    pairs: tuple[Languages, ...]
    """The language pairs as stored; each can also be requested in reverse."""
    train: tuple[CorpusEntry, ...]
    valid: tuple[CorpusEntry, ...]
    test: tuple[CorpusEntry, ...]
    folder: Path
    """The folder that `files` are relative to."""

    @property
    def entries(self) -> tuple[CorpusEntry, ...]:
        return self.train + self.valid + self.test

    @property
    def names(self) -> tuple[str, ...]:
        """The corpus name, or one name per pair if there are several."""
        return (self.name,) if len(self.pairs) == 1 else tuple(f"{self.name}/{pair.direction}" for pair in self.pairs)

    @property
    def licences(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.licence for entry in self.entries))

    def download_bytes(self, pair: Languages) -> int | None:
        """Total download size for a pair, or None if some size is unknown."""
        entries = [entry for entry in self.entries if pair in entry.pairs]
        sizes = {remote.url: remote.size_bytes for entry in entries for remote in entry.for_pair(pair).remotes}
        known = [size for size in sizes.values() if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def read_description(path: Path) -> CorpusDescription:
    """Read a description and report all its problems at once."""
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror}): check the path", path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"is not valid TOML ({error}): correct that line", path) from error
    problems = _unknown_keys(table, _CORPUS_KEYS, "the corpus")
    corpus_pairs: tuple[Languages, ...] = ()
    if "source" in table or "target" in table:
        codes = [table.get(key) for key in ("source", "target")]
        if all(isinstance(code, str) and code for code in codes) and codes[0] != codes[1]:
            corpus_pairs = (Languages(str(codes[0]), str(codes[1])),)
        else:
            problems.append('source and target must be two different language codes, such as source = "en"')
    entries: dict[str, tuple[CorpusEntry, ...]] = {}
    for split in SPLITS:
        tables = table.get(split, [])
        if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
            problems.append(f"{split} must be written as [[{split}]]")
            tables = []
        entries[split] = tuple(
            _parse_entry(item, f"{split} {number}", corpus_pairs, problems)
            for number, item in enumerate(tables, start=1)
        )
    pairs = tuple(dict.fromkeys(pair for part in entries.values() for entry in part for pair in entry.pairs))
    if not entries["train"]:
        problems.append("there is no [[train]] entry")
    if not pairs and not problems:
        problems.append("no languages are given: set source and target, or pairs in each entry")
    if problems:
        raise CorpusError("; ".join(problems), path)
    name, about = str(table.get("name", path.stem)), str(table.get("about", ""))
    return CorpusDescription(name, about, pairs, entries["train"], entries["valid"], entries["test"], path.parent)


def _parse_entry(
    table: Mapping[str, Any], where: str, corpus_pairs: tuple[Languages, ...], problems: list[str]
) -> CorpusEntry:
    """An entry. Its problems are added to `problems`; then the entry is only a placeholder."""
    problems_before = len(problems)
    problems += _unknown_keys(table, _ENTRY_KEYS, where)
    lists = {key: _string_list(table, key, where, problems) for key in _LIST_KEYS}
    for key, pattern in _PATTERNS.items():
        problems += [f"{where}: {key} {text!r} is malformed" for text in lists[key] if not pattern.fullmatch(text)]
    sizes = table.get("size", [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    numbers = {"weight": table.get("weight", 1.0), "sentences": table.get("sentences", 0), "seed": table.get("seed", 1)}
    for key, value in [*numbers.items(), *(("size", size) for size in sizes)]:
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            problems.append(f"{where}: {key} must be a number that is not negative")
    format = table.get("format", "tsv" if table.get("generator") else None)
    problems += _origin_problems(table, lists, format, where)
    problems += _download_problems(lists, sizes, where)
    if bool(corpus_pairs) == bool(lists["pairs"]):
        problems.append(f"{where}: set either pairs in the entries or source and target for the corpus")
    if len(problems) > problems_before:
        return CorpusEntry(str(table.get("name")), str(format), corpus_pairs)
    columns = [sizes, lists["sha256"], lists["md5"]]
    rows = zip(lists["url"], *(column or [None] * len(lists["url"]) for column in columns), strict=True)
    return CorpusEntry(
        name=str(table.get("name", where.replace(" ", "-"))),
        format=str(format),
        pairs=corpus_pairs or tuple(Languages(*pair.split("-")) for pair in lists["pairs"]),
        licence=str(table.get("licence", "not stated")),
        weight=float(numbers["weight"]),
        remotes=tuple(RemoteFile(*row) for row in rows),
        members=tuple(lists["members"]),
        files=tuple(lists["files"]),
        generator=table.get("generator"),
        sentences=int(numbers["sentences"]),
        seed=int(numbers["seed"]),
    )


def _origin_problems(table: Mapping[str, Any], lists: Mapping[str, list[str]], format: Any, where: str) -> list[str]:
    """Check that the entry has one origin, and as many files as its format needs."""
    problems = []
    generator = table.get("generator")
    origins = [key for key in ("url", "files", "generator") if table.get(key)]
    if len(origins) != 1:
        problems.append(f"{where}: set exactly one of url, files and generator")
    elif generator and generator not in GENERATORS:
        problems.append(f"{where}: generator {generator!r} is unknown, known are {', '.join(GENERATORS)}")
    if format not in FORMATS:
        problems.append(f"{where}: format {format!r} is unknown, known are {', '.join(FORMATS)}")
    elif not generator:
        count, needed = len(lists["members"] or lists["url"] or lists["files"]), 1 + (format in TWO_FILE_FORMATS)
        if count != needed:
            problems.append(f"{where}: {format} needs {needed} file{'s' * (needed > 1)}, but {count} are given")
    return problems


def _download_problems(lists: Mapping[str, list[str]], sizes: Sequence[Any], where: str) -> list[str]:
    """Check the addresses, the facts stated about them, and the members of archives."""
    problems = []
    for key, values in (("size", sizes), ("sha256", lists["sha256"]), ("md5", lists["md5"])):
        if values and len(values) != len(lists["url"]):
            problems.append(f"{where}: {key} must be given once for each url")
    archives = [url for url in lists["url"] if url.endswith(ARCHIVE_SUFFIXES)]
    if bool(archives) != bool(lists["members"]) or (archives and len(lists["url"]) > 1):
        problems.append(f"{where}: members requires the url of one archive ({', '.join(ARCHIVE_SUFFIXES)})")
    for url in lists["url"]:
        try:
            local_path(url)
        except DownloadError as error:
            problems.append(f"{where}: {error}")
    return problems


def _string_list(table: Mapping[str, Any], key: str, where: str, problems: list[str]) -> list[str]:
    """A list of strings; a single string needs no brackets."""
    value = table.get(key, [])
    values = value if isinstance(value, list) else [value]
    if all(isinstance(item, str) and item for item in values):
        return values
    problems.append(f"{where}: {key} must be a string or a list of strings")
    return []


def _unknown_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> list[str]:
    problems = []
    for key in table.keys() - set(known):
        matches = difflib.get_close_matches(key, known, n=1)
        problems.append(f"{where}: {key} is unknown, " + (f"did you mean {matches[0]}?" if matches else "remove it"))
    return sorted(problems)

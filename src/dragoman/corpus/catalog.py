"""Named corpora: what each is made of, where it comes from, and how to have it here.

A description is a TOML file, shipped or one's own. It names the languages, and for `train`, `valid` and `test` the
entries that make them up. An entry has `url` (one file; an archive with `members`; or two files, source side first),
or `files` (paths beside the TOML file), or `generator`. A corpus in many languages gives no `source` and `target`;
its entries say for which `pairs` they hold, and `{pair}`, `{first}` and `{second}` stand for the one asked for.
"""

import difflib
import hashlib
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.corpus import sources
from dragoman.corpus.archive import unpack
from dragoman.corpus.download import Patience, fetch, forget
from dragoman.corpus.download_cache import Fetched, Remote, cache_root, local_path, locked
from dragoman.corpus.line_formats import LineReader
from dragoman.corpus.source_arguments import TWO_FILE_FORMATS
from dragoman.corpus.sources import Languages, Source
from dragoman.errors import CorpusError, DownloadError
from dragoman.files import replacing
from dragoman.progress import Progress, no_progress

SPLITS = ("train", "valid", "test")
GENERATORS = ("demo",)
ARCHIVES = (".tgz", ".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst", ".zip")
_CORPUS_KEYS = ("name", "about", "source", "target", *SPLITS)
_ENTRY_KEYS = (
    *("name", "format", "licence", "weight", "pairs", "url", "size", "sha256", "md5"),
    *("members", "files", "generator", "sentences", "seed"),
)
_SHAPES = {"sha256": re.compile(r"[0-9a-f]{64}"), "md5": re.compile(r"[0-9a-f]{32}"), "pairs": re.compile(r"\w+-\w+")}


@dataclass(frozen=True)
class Entry:
    """One part of a corpus, as its description states it."""

    name: str
    format: str
    pairs: tuple[Languages, ...]
    licence: str = "not stated"
    weight: float = 1.0
    remotes: tuple[Remote, ...] = ()
    members: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    generator: str | None = None
    sentences: int = 0
    seed: int = 1


@dataclass(frozen=True)
class CorpusDescription:
    """A corpus that could be had."""

    name: str
    about: str
    pairs: tuple[Languages, ...]
    """As stored; each may also be asked for the other way round."""
    train: tuple[Entry, ...]
    valid: tuple[Entry, ...]
    test: tuple[Entry, ...]
    home: Path
    """The folder that `files` are relative to."""

    @property
    def names(self) -> tuple[str, ...]:
        """What to call it: its name alone, or one for each of several pairs."""
        return (self.name,) if len(self.pairs) == 1 else tuple(f"{self.name}/{_text(pair)}" for pair in self.pairs)

    @property
    def licences(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.licence for entry in self.train + self.valid + self.test))

    def download_bytes(self, pair: Languages) -> int | None:
        """What has to be fetched for a pair; None where some size is not known."""
        entries = [entry for entry in self.train + self.valid + self.test if pair in entry.pairs]
        sizes = {remote.url: remote.size_bytes for entry in entries for remote in _filled(entry, pair).remotes}
        known = [size for size in sizes.values() if size is not None]
        return sum(known) if len(known) == len(sizes) else None


@dataclass(frozen=True)
class Corpus:
    """A corpus that is here. Validation and test sets may be empty: not every corpus has its own."""

    name: str
    languages: Languages
    train: tuple[Source, ...]
    valid: tuple[Source, ...]
    test: tuple[Source, ...]


def describe() -> list[CorpusDescription]:
    """All shipped corpora, by name."""
    with importlib.resources.as_file(importlib.resources.files("dragoman.corpus") / "catalog") as shelf:
        return [read(path) for path in sorted(shelf.glob("*.toml"))]


def names() -> list[str]:
    """Every shipped name: `demo`, or `europarl-v7/de-en` where there are several pairs."""
    return [name for description in describe() for name in description.names]


def resolve(
    name_or_toml: str,
    *,
    cache: Path | None = None,
    mirror: Path | None = None,
    progress: Progress = no_progress,
    patience: Patience | None = None,
) -> Corpus:
    """Fetch what a named corpus or a description of one's own needs, verify it, and say where it lies.

    A pair may follow the name, to choose one or to turn it round: `europarl-v7/de-en`, `wmt16-en-de/de-en`.
    With a mirror, its files are used and the network is not touched.
    """
    description, pair, languages = find(name_or_toml)
    steward = _Steward(description, pair, languages, cache or cache_root(), mirror, progress, patience)
    try:
        return Corpus(description.name, languages, *(tuple(steward.sources(split)) for split in SPLITS))
    except OSError as error:
        raise CorpusError(
            f"{error.strerror or error}: see to that place, or set DRAGOMAN_CACHE to another",
            error.filename or steward.cache,
        ) from error


def find(name_or_toml: str) -> tuple[CorpusDescription, Languages, Languages]:
    """The description, the pair as it is stored, and the direction that is asked for."""
    if named := re.fullmatch(r"(.*\.toml)(?:/([^/]+))?", name_or_toml):
        description, wanted = read(Path(named[1])), named[2] or ""
    else:
        name, _, wanted = name_or_toml.partition("/")
        known = {description.name: description for description in describe()}
        if name not in known:
            either_way = {
                **{key: key for key in known},
                **{_turned(key): f"{key}/{_turned(key)[-5:]}" for key in known if _turned(key) != key},
            }
            near = difflib.get_close_matches(name, either_way, n=1, cutoff=0.5)
            hint = f"did you mean {either_way[near[0]]}? " if near else ""
            raise CorpusError(
                f"there is no corpus named {name}: {hint}known are {', '.join(known)}; "
                "`dragoman prepare --list` shows them all, and a path ending in .toml is a description of your own"
            )
        description = known[name]
    if not wanted and len(description.pairs) == 1:
        return description, description.pairs[0], description.pairs[0]
    for pair in description.pairs:
        for languages in (pair, Languages(pair.target, pair.source)):
            if wanted == _text(languages):
                return description, pair, languages
    missing = f"does not have the pair {wanted}" if wanted else "needs a pair of languages"
    raise CorpusError(
        f"{description.name} {missing}: write one after a slash, either way round, as in "
        f"{description.name}/{_text(description.pairs[0])}; it has {', '.join(map(_text, description.pairs))}"
    )


def _turned(name: str) -> str:
    """A name that ends in a pair of languages, with the pair the other way round."""
    return re.sub(r"(\w\w)-(\w\w)$", r"\2-\1", name)


@dataclass(frozen=True)
class _Steward:
    """Has one corpus brought here."""

    description: CorpusDescription
    pair: Languages
    languages: Languages
    cache: Path
    mirror: Path | None
    progress: Progress
    patience: Patience | None

    def sources(self, split: str) -> Iterator[Source]:
        for entry in getattr(self.description, split):
            if self.pair in entry.pairs:
                yield self._source(_filled(entry, self.pair), split)

    def _source(self, entry: Entry, split: str) -> Source:
        if entry.generator:
            paths: tuple[Path, ...] = (self._generated(split),)
        elif entry.members:
            paths = self._unpacked(entry)
        elif entry.remotes:
            paths = tuple(self._fetched(remote).path for remote in entry.remotes)
        else:
            paths = tuple(self.description.home / file for file in entry.files)
        source = Source(entry.name, paths, entry.format, entry.weight, entry.licence)
        reverse = self.languages != self.pair
        if len(paths) == 2:
            return replace(source, paths=paths[::-1] if reverse else paths)
        # Other formats of one file name their languages, so that it serves both directions.
        if entry.format == "tsv" and not entry.generator and (reverse or entry.remotes):
            # Published files have stray rows, which nobody can mend; one's own are better mended.
            return replace(source, paths=(self._two_columns(source, stray_rows=bool(entry.remotes)),))
        return source

    def _fetched(self, remote: Remote) -> Fetched:
        return fetch(remote, self.cache, mirror=self.mirror, progress=self.progress, patience=self.patience)

    def _unpacked(self, entry: Entry) -> tuple[Path, ...]:
        (remote,) = entry.remotes
        archive = self._fetched(remote)
        try:
            return unpack(
                archive, entry.members, self.cache / "unpacked" / local_path(remote.url), progress=self.progress
            )
        except CorpusError:
            if not remote.pinned and self.mirror is None:
                # Its checksum was only ours: a bad first download must not be held against a good second one.
                forget(remote, self.cache)
            raise

    def _generated(self, split: str) -> Path:
        """The demo's pairs as TSV: written once for each size, seed, direction and state of the generator."""
        from dragoman.corpus import demo

        sizes = {name: sum(e.sentences for e in getattr(self.description, name) if e.generator) for name in SPLITS}
        seed = next(entry.seed for name in SPLITS for entry in getattr(self.description, name) if entry.generator)
        key = "-".join(["demo", demo.version(), *map(str, sizes.values()), str(seed), _text(self.languages)])
        folder = self.cache / "generated" / key
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if not (folder / f"{split}.tsv").is_file():
                made = demo.generate(sizes["train"], seed, valid=sizes["valid"], test=sizes["test"])
                for name in SPLITS:
                    rows = ([side.encode() for side in pair] for pair in getattr(made, name))
                    _write_tsv(folder / f"{name}.tsv", rows, reverse=self.languages != self.pair)
        return folder / f"{split}.tsv"

    def _two_columns(self, source: Source, *, stray_rows: bool) -> Path:
        """A copy of a TSV file in the direction that is asked for, if need be without the rows that are no pairs."""
        key = hashlib.sha256(repr((sources.fingerprint(source), self.languages)).encode()).hexdigest()[:16]
        path = self.cache / "columns" / f"{source.name}-{key}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path):
            if not path.is_file():
                (original,) = source.paths
                rows: Iterable[Sequence[bytes]] = sources.read_pairs(source, self.pair)
                if stray_rows:
                    rows = (row for row in (line.split(b"\t") for line in LineReader(original)) if len(row) == 2)
                _write_tsv(path, rows, reverse=self.languages != self.pair)
        return path


def _write_tsv(path: Path, rows: Iterable[Sequence[bytes]], *, reverse: bool) -> None:
    with replacing(path) as draft, draft.open("wb") as out:
        for first, second in rows:
            out.write(b"%b\t%b\n" % ((second, first) if reverse else (first, second)))


def _filled(entry: Entry, pair: Languages) -> Entry:
    """The entry for one of its pairs."""

    def fill(text: str) -> str:
        for key, value in (("{pair}", _text(pair)), ("{first}", pair.source), ("{second}", pair.target)):
            text = text.replace(key, value)
        return text

    return replace(
        entry,
        name=fill(entry.name),
        remotes=tuple(replace(remote, url=fill(remote.url)) for remote in entry.remotes),
        members=tuple(map(fill, entry.members)),
        files=tuple(map(fill, entry.files)),
    )


def _text(languages: Languages) -> str:
    return f"{languages.source}-{languages.target}"


def read(path: Path) -> CorpusDescription:
    """Read a description, and report everything that is wrong with it at once."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror}): check the path", path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"is not TOML ({error}): correct that line", path) from error
    problems = _unknown_keys(table, _CORPUS_KEYS, "the corpus")
    whole: tuple[Languages, ...] = ()
    if "source" in table or "target" in table:
        codes = [table.get(key) for key in ("source", "target")]
        if all(isinstance(code, str) and code for code in codes) and codes[0] != codes[1]:
            whole = (Languages(str(codes[0]), str(codes[1])),)
        else:
            problems.append('source and target must be two different language codes, as in source = "en"')
    found: dict[str, tuple[Entry, ...]] = {}
    for split in SPLITS:
        tables = table.get(split, [])
        if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
            problems.append(f"{split} must be written as [[{split}]]")
            tables = []
        found[split] = tuple(_entry(item, f"{split} {n}", whole, problems) for n, item in enumerate(tables, start=1))
    pairs = tuple(dict.fromkeys(pair for entries in found.values() for entry in entries for pair in entry.pairs))
    if not found["train"]:
        problems.append("there is no [[train]] entry")
    if not pairs and not problems:
        problems.append("no languages are given: write source and target, or pairs in each entry")
    if problems:
        raise CorpusError("; ".join(problems), path)
    name, about = str(table.get("name", path.stem)), str(table.get("about", ""))
    return CorpusDescription(name, about, pairs, found["train"], found["valid"], found["test"], path.parent)


def _entry(table: Mapping[str, Any], where: str, whole: tuple[Languages, ...], problems: list[str]) -> Entry:
    """An entry, as far as it can be understood; what cannot is added to the problems."""
    said = len(problems)
    problems += _unknown_keys(table, _ENTRY_KEYS, where)
    lists = {
        key: _strings(table, key, where, problems) for key in ("url", "sha256", "md5", "members", "files", "pairs")
    }
    for key, shape in _SHAPES.items():
        problems += [f"{where}: {key} {text!r} is malformed" for text in lists[key] if not shape.fullmatch(text)]
    sizes = table.get("size", [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    for key, values in (("size", sizes), ("sha256", lists["sha256"]), ("md5", lists["md5"])):
        if values and len(values) != len(lists["url"]):
            problems.append(f"{where}: {key} must be given once for each url")
    numbers = {"weight": table.get("weight", 1.0), "sentences": table.get("sentences", 0), "seed": table.get("seed", 1)}
    for key, value in [*numbers.items(), *(("size", size) for size in sizes)]:
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            problems.append(f"{where}: {key} must be a number that is not negative")
    generator = table.get("generator")
    form = table.get("format", "tsv" if generator else None)
    ways = [key for key in ("url", "files", "generator") if table.get(key)]
    if len(ways) != 1:
        problems.append(f"{where}: give exactly one of url, files and generator")
    elif generator and generator not in GENERATORS:
        problems.append(f"{where}: generator {generator!r} is unknown, known are {', '.join(GENERATORS)}")
    if form not in sources.FORMATS:
        problems.append(f"{where}: format {form!r} is unknown, known are {', '.join(sources.FORMATS)}")
    elif not generator:
        count, sides = len(lists["members"] or lists["url"] or lists["files"]), 1 + (form in TWO_FILE_FORMATS)
        if count != sides:
            problems.append(f"{where}: {form} needs {sides} file{'s' * (sides > 1)} and {count} are given")
    archives = [url for url in lists["url"] if url.endswith(ARCHIVES)]
    if bool(archives) != bool(lists["members"]) or (archives and len(lists["url"]) > 1):
        problems.append(f"{where}: members go with the url of one archive ({', '.join(ARCHIVES)})")
    for url in lists["url"]:
        try:
            local_path(url)
        except DownloadError as error:
            problems.append(f"{where}: {error}")
    if bool(whole) == bool(lists["pairs"]):
        problems.append(f"{where}: give pairs in the entries or source and target for the whole, and not both")
    if len(problems) > said:
        return Entry(str(table.get("name")), str(form), whole)
    facts = [sizes, lists["sha256"], lists["md5"]]
    rows = zip(lists["url"], *(fact or [None] * len(lists["url"]) for fact in facts), strict=True)
    return Entry(
        name=str(table.get("name", where.replace(" ", "-"))),
        format=str(form),
        pairs=whole or tuple(Languages(*pair.split("-")) for pair in lists["pairs"]),
        licence=str(table.get("licence", "not stated")),
        weight=float(numbers["weight"]),
        remotes=tuple(Remote(*row) for row in rows),
        members=tuple(lists["members"]),
        files=tuple(lists["files"]),
        generator=generator,
        sentences=int(numbers["sentences"]),
        seed=int(numbers["seed"]),
    )


def _strings(table: Mapping[str, Any], key: str, where: str, problems: list[str]) -> list[str]:
    """A list of strings; one alone may stand without brackets."""
    value = table.get(key, [])
    values = value if isinstance(value, list) else [value]
    if all(isinstance(item, str) and item for item in values):
        return values
    problems.append(f"{where}: {key} must be a string or a list of strings")
    return []


def _unknown_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> list[str]:
    problems = []
    for key in table.keys() - set(known):
        near = difflib.get_close_matches(key, known, n=1)
        problems.append(f"{where}: {key} is unknown, " + (f"did you mean {near[0]}?" if near else "leave it out"))
    return sorted(problems)

"""Named corpora: the shipped descriptions, and how a corpus is fetched and made available as local files."""

import difflib
import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman.corpus import sources
from dragoman.corpus.archive import unpack
from dragoman.corpus.corpus_description import CorpusDescription, CorpusEntry, read_description
from dragoman.corpus.dataset import SPLITS
from dragoman.corpus.download import RetryPolicy, fetch, remove_download
from dragoman.corpus.download_cache import RemoteFile, VerifiedFile, append_suffix, cache_root, local_path
from dragoman.corpus.line_formats import LineReader
from dragoman.corpus.sources import Languages, Source
from dragoman.errors import CorpusError
from dragoman.files import locked, replacing
from dragoman.progress_callback import Progress, no_progress


@dataclass(frozen=True)
class Corpus:
    """A corpus whose files are local. Validation and test sets may be empty: not every corpus has its own."""

    name: str
    languages: Languages
    train: tuple[Source, ...]
    valid: tuple[Source, ...]
    test: tuple[Source, ...]


def descriptions() -> list[CorpusDescription]:
    """All shipped corpora, by name."""
    with importlib.resources.as_file(importlib.resources.files("dragoman.corpus") / "catalog") as folder:
        return [read_description(path) for path in sorted(folder.glob("*.toml"))]


def names() -> list[str]:
    """All shipped names: `demo`, or `europarl-v7/de-en` if a corpus has several pairs."""
    return [name for description in descriptions() for name in description.names]


def resolve(
    name_or_toml: str,
    *,
    cache: Path | None = None,
    mirror: Path | None = None,
    progress: Progress = no_progress,
    retry: RetryPolicy | None = None,
) -> Corpus:
    """Fetch and verify the files of a shipped corpus or of a description, and return their local paths.

    A language pair may follow the name, to choose one or to reverse it: `europarl-v7/de-en`, `wmt16-en-de/de-en`.
    With a mirror, its files are used instead of the network.
    """
    description, pair, languages = find(name_or_toml)
    fetcher = _CorpusFetcher(description, pair, languages, cache or cache_root(), mirror, progress, retry)
    try:
        return Corpus(description.name, languages, *(tuple(fetcher.sources(split)) for split in SPLITS))
    except OSError as error:
        raise CorpusError(
            f"{error.strerror or error}: fix that, or set DRAGOMAN_CACHE to another folder",
            error.filename or fetcher.cache,
        ) from error


def find(name_or_toml: str) -> tuple[CorpusDescription, Languages, Languages]:
    """The description, the language pair as stored, and the requested direction."""
    if toml := re.fullmatch(r"(.*\.toml)(?:/([^/]+))?", name_or_toml):
        description, requested = read_description(Path(toml[1])), toml[2] or ""
    else:
        name, _, requested = name_or_toml.partition("/")
        shipped = {description.name: description for description in descriptions()}
        if name not in shipped:
            raise _unknown_corpus(name, list(shipped))
        description = shipped[name]
    if not requested and len(description.pairs) == 1:
        return description, description.pairs[0], description.pairs[0]
    for pair in description.pairs:
        for languages in (pair, pair.reversed):
            if requested == languages.direction:
                return description, pair, languages
    problem = f"does not have the language pair {requested}" if requested else "needs a language pair"
    raise CorpusError(
        f"{description.name} {problem}: add one after a slash, in either direction, such as "
        f"{description.name}/{description.pairs[0].direction}; "
        f"it has {', '.join(pair.direction for pair in description.pairs)}"
    )


def _unknown_corpus(name: str, known: Sequence[str]) -> CorpusError:
    suggestions = {
        **{key: key for key in known},
        **{_reverse_name(key): f"{key}/{_reverse_name(key)[-5:]}" for key in known if _reverse_name(key) != key},
    }
    matches = difflib.get_close_matches(name, suggestions, n=1, cutoff=0.5)
    hint = f"did you mean {suggestions[matches[0]]}? " if matches else ""
    return CorpusError(
        f"there is no corpus named {name}: {hint}known are {', '.join(known)}; "
        "`dragoman prepare --list` shows all, and a path ending in .toml is read as a corpus description"
    )


def _reverse_name(name: str) -> str:
    """A name that ends in a language pair, with the pair reversed."""
    return re.sub(r"(\w\w)-(\w\w)$", r"\2-\1", name)


@dataclass(frozen=True)
class _CorpusFetcher:
    """Makes the files of one corpus available locally."""

    description: CorpusDescription
    pair: Languages
    languages: Languages
    cache: Path
    mirror: Path | None
    progress: Progress
    retry: RetryPolicy | None

    def sources(self, split: str) -> Iterator[Source]:
        for entry in getattr(self.description, split):
            if self.pair in entry.pairs:
                yield self._source(entry.for_pair(self.pair), split)

    @property
    def _is_reversed(self) -> bool:
        return self.languages != self.pair

    def _source(self, entry: CorpusEntry, split: str) -> Source:
        if entry.generator:
            paths: tuple[Path, ...] = (self._generate(split),)
        elif entry.members:
            paths = self._unpack(entry)
        elif entry.remotes:
            paths = tuple(self._fetch(remote).path for remote in entry.remotes)
        else:
            paths = tuple(self.description.folder / file for file in entry.files)
        source = Source(entry.name, paths, entry.format, entry.weight, entry.licence)
        if len(paths) == 2:
            return replace(source, paths=paths[::-1] if self._is_reversed else paths)
        # The other one-file formats contain language codes, so they work in both directions.
        if entry.format == "tsv" and not entry.generator and (self._is_reversed or entry.remotes):
            # Published files have invalid rows that users cannot fix; in their own files these are errors.
            return replace(source, paths=(self._rewrite_tsv(source, skip_invalid_rows=bool(entry.remotes)),))
        return source

    def _fetch(self, remote: RemoteFile) -> VerifiedFile:
        return fetch(remote, self.cache, mirror=self.mirror, progress=self.progress, retry=self.retry)

    def _unpack(self, entry: CorpusEntry) -> tuple[Path, ...]:
        (remote,) = entry.remotes
        archive = self._fetch(remote)
        try:
            return unpack(
                archive, entry.members, self.cache / "unpacked" / local_path(remote.url), progress=self.progress
            )
        except CorpusError:
            if not remote.has_checksum and self.mirror is None:
                # The recorded checksum is that of a damaged download: the next download must not be compared with it.
                remove_download(remote, self.cache)
            raise

    def _generate(self, split: str) -> Path:
        """The demo pairs as TSV, generated once for each size, seed, direction and version of the generator."""
        from dragoman.corpus import demo

        sizes = {name: sum(e.sentences for e in getattr(self.description, name) if e.generator) for name in SPLITS}
        seed = next(entry.seed for entry in self.description.entries if entry.generator)
        key = "-".join(["demo", demo.version(), *map(str, sizes.values()), str(seed), self.languages.direction])
        folder = self.cache / "generated" / key
        folder.mkdir(parents=True, exist_ok=True)
        with locked(append_suffix(folder, ".lock")):
            if not (folder / f"{split}.tsv").is_file():
                corpus = demo.generate(sizes["train"], seed, valid=sizes["valid"], test=sizes["test"])
                for name in SPLITS:
                    rows = ([side.encode() for side in pair] for pair in getattr(corpus, name))
                    _write_tsv(folder / f"{name}.tsv", rows, reverse=self._is_reversed)
        return folder / f"{split}.tsv"

    def _rewrite_tsv(self, source: Source, *, skip_invalid_rows: bool) -> Path:
        """A copy of a TSV file in the requested direction, optionally without the rows that are not pairs."""
        key = hashlib.sha256(repr((sources.fingerprint(source), self.languages)).encode()).hexdigest()[:16]
        path = self.cache / "columns" / f"{source.name}-{key}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(append_suffix(path, ".lock")):
            if not path.is_file():
                (original,) = source.paths
                rows: Iterable[Sequence[bytes]] = sources.read_pairs(source, self.pair)
                if skip_invalid_rows:
                    rows = (row for row in (line.split(b"\t") for line in LineReader(original)) if len(row) == 2)
                _write_tsv(path, rows, reverse=self._is_reversed)
        return path


def _write_tsv(path: Path, rows: Iterable[Sequence[bytes]], *, reverse: bool) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        for first, second in rows:
            file.write(b"%b\t%b\n" % ((second, first) if reverse else (first, second)))

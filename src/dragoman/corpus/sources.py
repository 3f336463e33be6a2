"""Sources of sentence pairs: aligned files or one file with both sides, plain or compressed, or standard input."""

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman.corpus.language_codes import same_language
from dragoman.corpus.source_arguments import (
    FORMATS,
    STANDARD_INPUT,
    TWO_FILE_FORMATS,
    SourceArgument,
    format_from_names,
    join_sides,
    parse_argument,
    unknown_format_problem,
)
from dragoman.errors import CorpusError

__all__ = [
    "FORMATS",
    "Languages",
    "Source",
    "check_readable",
    "fingerprint",
    "is_standard_input",
    "read_pairs",
    "sources_from_arguments",
]


@dataclass(frozen=True)
class Languages:
    """The direction of translation, as two language codes such as `en` and `de`."""

    source: str
    target: str

    @property
    def direction(self) -> str:
        """The two codes as one string: `en-de`."""
        return f"{self.source}-{self.target}"

    @property
    def reversed(self) -> "Languages":
        return Languages(self.target, self.source)


@dataclass(frozen=True)
class Source:
    """One source of sentence pairs."""

    name: str
    paths: tuple[Path, ...]
    """One file with both sides, or two aligned files (source side first); `-` is standard input."""
    format: str
    """One of FORMATS."""
    weight: float = 1.0
    """Occurrences of each pair per epoch: 2 is twice, 0.5 every other pair."""
    licence: str = "not stated"
    encoding: str | None = None
    """The encoding of text formats; UTF-8 if None. XML and gettext catalogs state their own."""
    synthetic: str = ""
    """The language of the side that a model wrote, if it is known."""


def read_pairs(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a source as UTF-8 without line ends; invalid bytes are passed through.

    The call itself raises if a file cannot be opened; the iterator raises on invalid content.
    """
    check_readable(source)
    return _pairs(source, languages)


def _pairs(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    pairs = _reader(source, languages)
    first = next(pairs, None)
    if first is None:
        raise CorpusError(
            f"contains no pairs of {languages.source} and {languages.target}: check that it is the right file",
            " and ".join(map(str, source.paths)),
        )
    yield first
    yield from pairs


def _reader(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    from dragoman.corpus import csv_format, gettext_catalogs, line_formats, tmx, xliff

    encoding = source.encoding
    match source.format, source.paths:
        case "lines", (left, right):
            return line_formats.read_lines(left, right, encoding)
        case "tags", (left, right):
            return line_formats.read_tags(left, right, encoding)
        case "sgm", (left, right):
            return line_formats.read_sgm(left, right, encoding)
        case "tsv", (path,):
            return line_formats.read_tsv(path, encoding)
        case "csv", (path,):
            return csv_format.read_csv(path, languages, encoding)
        case "jsonl", (path,):
            return line_formats.read_jsonl(path, languages, encoding)
        case "tmx", (path,):
            return tmx.read_tmx(path, languages)
        case "xliff", (path,):
            return xliff.read_xliff(path, languages)
        case "po", (path,):
            return gettext_catalogs.read_po(path, languages)
        case "mo", (path,):
            return gettext_catalogs.read_mo(path, languages)
    raise AssertionError(f"check_readable should have rejected {source.format} with {len(source.paths)} files")


def check_readable(source: Source) -> None:
    """Raise one error with every problem that can be found without reading the files."""
    _raise_problems(_source_problems(source))


def is_standard_input(source: Source) -> bool:
    """True if the source can be read only once."""
    return STANDARD_INPUT in source.paths


def fingerprint(source: Source) -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time (ns) of each file, to detect changed inputs.

    Folders are left out, since a corpus may be moved between two runs. Standard input always counts as changed.
    """
    check_readable(source)
    files = []
    for path in source.paths:
        if path == STANDARD_INPUT:
            files.append((str(path), 0, time.time_ns()))
        else:
            status = path.stat()
            files.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(files)


def _source_problems(source: Source) -> list[str]:
    if source.format not in FORMATS:
        return [f"{source.name}: the format {source.format!r} is unknown: choose one of {', '.join(FORMATS)}"]
    problems = []
    file_count = 2 if source.format in TWO_FILE_FORMATS else 1
    listed = ",".join(map(str, source.paths))
    if len(source.paths) != file_count:
        problems.append(
            f"{listed}: {source.format} has one file per side: give both, as SOURCE,TARGET"
            if file_count == 2
            else f"{listed}: {source.format} holds both sides in one file: give the files separately, without a comma"
        )
    elif file_count == 2 and STANDARD_INPUT in source.paths:
        problems.append(f"{listed}: standard input cannot be one side of {source.format}: pipe both sides in as TSV")
    problems += [problem for path in source.paths if (problem := _path_problem(path))]
    return problems


def _path_problem(path: Path) -> str | None:
    if path == STANDARD_INPUT:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{path}: the file does not exist: check the path"
    except (OSError, ValueError) as error:
        return f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}): check the path"
    if stat.S_ISDIR(mode):
        return f"{path}: is a folder: name the files in it"
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{path}: permission denied: make it readable with chmod"
    return None


def _raise_problems(problems: Sequence[str]) -> None:
    if len(problems) == 1:
        raise CorpusError(problems[0])
    if problems:
        raise CorpusError("\n  ".join([f"{len(problems)} problems with the corpus:", *problems]))


def sources_from_arguments(
    texts: Sequence[str], languages: Languages | None, format: str | None, encoding: str | None = None
) -> tuple[list[Source], Languages]:
    """Sources from `PATH`, `PATH,PATH` and consecutive arguments such as `train.en train.de`, with optional `@WEIGHT`.

    Formats and languages that are not given are taken from the file names, languages also from files that state them.
    All problems are reported at once.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"the format {format!r} is unknown: choose one of {', '.join(FORMATS)}")
    if not texts:
        raise CorpusError("no corpus is given: name files, such as train.en,train.de or pairs.tsv")
    problems: list[str] = []
    arguments = join_sides(_parse_arguments(texts, problems), format)
    if languages is None and arguments:
        try:
            languages = _common_languages(arguments, format, encoding)
        except (ValueError, CorpusError) as error:
            problems.append(str(error))
    sources: list[Source] = []
    for argument in arguments:
        paths = argument.paths
        if languages is not None:
            try:
                paths = _source_side_first(argument, languages)
            except ValueError as error:
                problems.append(str(error))
        source_format = "lines" if argument.folder else format or format_from_names(paths)
        if source_format is None:
            problems.append(_path_problem(paths[0]) or unknown_format_problem(paths[0]))
            continue
        weight = 1.0 if argument.weight is None else argument.weight
        # `synthesize` writes UTF-8, whatever the encoding of other files.
        encoding_of_source = None if argument.folder else encoding
        sources.append(
            Source(
                argument.name, paths, source_format, weight, encoding=encoding_of_source, synthetic=argument.synthetic
            )
        )
        problems += _source_problems(sources[-1])
    times_given = Counter(source.paths for source in sources)
    problems += [
        f"{','.join(map(str, paths))}: is given {times} times: give it once, with @{times} to repeat its pairs"
        for paths, times in times_given.items()
        if times > 1
    ]
    _raise_problems(problems)
    assert languages is not None
    return _with_distinct_names(sources), languages


def _parse_arguments(texts: Sequence[str], problems: list[str]) -> list[SourceArgument]:
    arguments: list[SourceArgument] = []
    for text in texts:
        try:
            arguments.append(parse_argument(text))
        except ValueError as error:
            problems.append(str(error))
    return arguments


def _common_languages(arguments: Sequence[SourceArgument], format: str | None, encoding: str | None) -> Languages:
    """The direction that all file names agree on, or else the files that state their languages."""
    found: dict[Languages, SourceArgument] = {}
    for argument in arguments:
        codes = argument.languages or _languages_in_file(argument, format, encoding)
        if codes and not any(_same_direction(Languages(*codes), other) for other in found):
            found[Languages(*codes)] = argument
    if len(found) == 1:
        return next(iter(found))
    if found:
        stated = "; ".join(f"{argument}: {pair.source} to {pair.target}" for pair, argument in found.items())
        raise ValueError(
            f"the files state several directions ({stated}): set one with --languages, or give files of one only"
        )
    names = ", ".join(map(str, arguments))
    raise ValueError(
        f"{names}: no languages in the file name or the file: set them with --languages en-de, "
        "or use names like news.en,news.de"
    )


def _languages_in_file(argument: SourceArgument, format: str | None, encoding: str | None) -> tuple[str, str] | None:
    from dragoman.corpus.stated_languages import stated_languages

    file_format = format or format_from_names(argument.paths)
    (path, *others) = argument.paths
    if others or file_format is None or path == STANDARD_INPUT or _path_problem(path):
        return None
    return stated_languages(path, file_format, encoding)


def _source_side_first(argument: SourceArgument, languages: Languages) -> tuple[Path, ...]:
    """The two sides in the order of `languages`; files joined by a comma may have any names."""
    codes = argument.languages
    if len(argument.paths) == 1 or codes is None:
        return argument.paths
    found = Languages(*codes)
    if _same_direction(found, languages):
        return argument.paths
    if _same_direction(found.reversed, languages):
        return argument.paths[::-1]
    if argument.joined or argument.folder:
        raise ValueError(
            f"{argument}: the names imply {found.source} and {found.target}, not {languages.source} and "
            f"{languages.target}: leave the files out, or join them with a comma if the names are wrong"
        )
    return argument.paths


def _same_direction(first: Languages, second: Languages) -> bool:
    if same_language(first.source, first.target):  # The sides differ only in their region.
        return (first.source.lower(), first.target.lower()) == (second.source.lower(), second.target.lower())
    return same_language(first.source, second.source) and same_language(first.target, second.target)


def _with_distinct_names(sources: list[Source]) -> list[Source]:
    """Prefix equal names with their folder's name, and number those that are still equal."""
    times = Counter(source.name for source in sources)
    named = [
        replace(source, name=f"{source.paths[0].absolute().parent.name}/{source.name}")
        if times[source.name] > 1
        else source
        for source in sources
    ]
    seen: Counter[str] = Counter()
    distinct = []
    for source in named:
        seen[source.name] += 1
        number = seen[source.name]
        distinct.append(source if number == 1 else replace(source, name=f"{source.name}-{number}"))
    return distinct

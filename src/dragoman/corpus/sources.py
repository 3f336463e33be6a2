"""Where pairs come from: aligned files, TSV, JSONL, TMX, PO, MO, SGM; plain or compressed; or standard input."""

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
    cannot_tell,
    codes_in,
    format_of,
    join_sides,
    name_of,
    parse_word,
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


@dataclass(frozen=True)
class Source:
    """One place where pairs come from."""

    name: str
    paths: tuple[Path, ...]
    """One file that holds both sides, or two aligned ones (source side first); `-` is standard input."""
    format: str
    """One of FORMATS."""
    weight: float = 1.0
    """How often each of its pairs is seen in an epoch: 2 is twice, 0.5 every other pair."""
    licence: str = "not stated"


def read_pairs(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a source, as UTF-8 without line ends; bytes that are not UTF-8 come as they are.

    Files that cannot be read are reported by the call, what is wrong inside of them by the iterator.
    """
    check_readable(source)
    return _pairs(source, languages)


def _pairs(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    pairs = _reader(source, languages)
    first = next(pairs, None)
    if first is None:
        raise CorpusError(
            f"no pairs of {languages.source} and {languages.target} in it: check that it is the right file",
            " and ".join(map(str, source.paths)),
        )
    yield first
    yield from pairs


def _reader(source: Source, languages: Languages) -> Iterator[tuple[bytes, bytes]]:
    from dragoman.corpus import line_formats, translation_memories

    match source.format, source.paths:
        case "lines", (left, right):
            return line_formats.read_lines(left, right)
        case "tags", (left, right):
            return line_formats.read_tags(left, right)
        case "sgm", (left, right):
            return line_formats.read_sgm(left, right)
        case "tsv", (path,):
            return line_formats.read_tsv(path)
        case "jsonl", (path,):
            return line_formats.read_jsonl(path, languages)
        case "tmx", (path,):
            return translation_memories.read_tmx(path, languages)
        case "po", (path,):
            return translation_memories.read_po(path, languages)
        case "mo", (path,):
            return translation_memories.read_mo(path, languages)
    raise AssertionError(f"check_readable lets {source.format} of {len(source.paths)} files pass")


def check_readable(source: Source) -> None:
    """Raise one error with everything that can be known to be wrong before the first byte is read."""
    _raise(_problems_of(source))


def is_standard_input(source: Source) -> bool:
    """Whether the source can be read only once."""
    return STANDARD_INPUT in source.paths


def fingerprint(source: Source) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change (ns) of each file: if they are the same, so is the input.

    Without the folder, since a corpus may move between two runs. Standard input is never the same twice.
    """
    check_readable(source)
    marks = []
    for path in source.paths:
        if path == STANDARD_INPUT:
            marks.append((str(path), 0, time.time_ns()))
        else:
            status = path.stat()
            marks.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(marks)


def _problems_of(source: Source) -> list[str]:
    if source.format not in FORMATS:
        return [f"{source.name}: there is no format {source.format!r}: choose one of {', '.join(FORMATS)}"]
    problems = []
    needed = 2 if source.format in TWO_FILE_FORMATS else 1
    shown = ",".join(map(str, source.paths))
    if len(source.paths) != needed:
        problems.append(
            f"{shown}: {source.format} is one file a side: give both, as SOURCE,TARGET"
            if needed == 2
            else f"{shown}: {source.format} holds both sides in one file: give its files one by one, without a comma"
        )
    elif needed == 2 and STANDARD_INPUT in source.paths:
        problems.append(f"{shown}: standard input cannot be one side of {source.format}: pipe both sides in as TSV")
    problems += [problem for path in source.paths if (problem := _problem_of(path))]
    return problems


def _problem_of(path: Path) -> str | None:
    if path == STANDARD_INPUT:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{path}: there is no such file: check the path"
    except (OSError, ValueError) as error:
        return f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}): check the path"
    if stat.S_ISDIR(mode):
        return f"{path}: is a folder: name the files in it"
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{path}: may not be read by you: change its rights with chmod"
    return None


def _raise(problems: Sequence[str]) -> None:
    if len(problems) == 1:
        raise CorpusError(problems[0])
    if problems:
        raise CorpusError("\n  ".join([f"{len(problems)} problems with the corpus:", *problems]))


def sources_from_arguments(
    arguments: Sequence[str], languages: Languages | None, format: str | None
) -> tuple[list[Source], Languages]:
    """Sources from `PATH`, `PATH,PATH` and pairs of words such as `train.en train.de`, each with `@WEIGHT` if wanted.

    Formats and languages that are not given are read off the names. All problems are reported at once.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"there is no format {format!r}: choose one of {', '.join(FORMATS)}")
    if not arguments:
        raise CorpusError("no corpus is named: give files, as in train.en,train.de or pairs.tsv")
    problems: list[str] = []
    words: list[SourceArgument] = []
    for argument in arguments:
        try:
            words.append(parse_word(argument))
        except ValueError as error:
            problems.append(str(error))
    words = join_sides(words, format)
    if languages is None and words:
        try:
            languages = _languages_of(words)
        except ValueError as error:
            problems.append(str(error))
    sources: list[Source] = []
    for word in words:
        paths = word.paths
        if languages is not None:
            try:
                paths = _source_side_first(word, languages)
            except ValueError as error:
                problems.append(str(error))
        kind = format or format_of(paths)
        if kind is None:
            problems.append(_problem_of(paths[0]) or cannot_tell(paths[0]))
            continue
        sources.append(Source(name_of(paths), paths, kind, 1.0 if word.weight is None else word.weight))
        problems += _problems_of(sources[-1])
    times_given = Counter(source.paths for source in sources)
    problems += [
        f"{','.join(map(str, paths))}: is given {times} times: give it once, with @{times} to see it more often"
        for paths, times in times_given.items()
        if times > 1
    ]
    _raise(problems)
    assert languages is not None
    return _with_distinct_names(sources), languages


def _languages_of(words: Sequence[SourceArgument]) -> Languages:
    """What the names agree on."""
    found: dict[Languages, SourceArgument] = {}
    for word in words:
        codes = codes_in(word.paths)
        if codes and not any(_agree(Languages(*codes), other) for other in found):
            found[Languages(*codes)] = word
    if len(found) == 1:
        return next(iter(found))
    if found:
        stated = "; ".join(f"{word}: {pair.source} to {pair.target}" for pair, word in found.items())
        raise ValueError(
            f"the names tell several directions ({stated}): give the languages, or take one direction only"
        )
    places = ", ".join(map(str, words))
    raise ValueError(
        f"{places}: no languages in the name: give them with --languages en-de, or name the files like news.en,news.de"
    )


def _source_side_first(word: SourceArgument, languages: Languages) -> tuple[Path, ...]:
    """The sides in the order that the languages ask for; a pair with a comma may bear any names."""
    codes = codes_in(word.paths)
    if len(word.paths) == 1 or codes is None:
        return word.paths
    found = Languages(*codes)
    if _agree(found, languages):
        return word.paths
    if _agree(Languages(found.target, found.source), languages):
        return word.paths[::-1]
    if word.joined:
        raise ValueError(
            f"{word}: {found.source} and {found.target} by their names, not {languages.source} and {languages.target}: "
            "leave them out, or join them with a comma if the names mislead"
        )
    return word.paths


def _agree(first: Languages, second: Languages) -> bool:
    if same_language(first.source, first.target):  # regions alone tell the sides apart
        return (first.source.lower(), first.target.lower()) == (second.source.lower(), second.target.lower())
    return same_language(first.source, second.source) and same_language(first.target, second.target)


def _with_distinct_names(sources: list[Source]) -> list[Source]:
    """Two corpora that both call themselves `train` get their folders' names, and a number where that is not enough."""
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

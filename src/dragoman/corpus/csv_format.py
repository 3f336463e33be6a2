"""Reader for CSV: fields separated by commas, semicolons or tabs, quoted or not, with or without a header row."""

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dragoman.corpus.language_codes import find_language, is_code
from dragoman.corpus.language_names import language_name
from dragoman.corpus.line_formats import LineReader, PairIterator, encode_line
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
CHECKED_ROWS = 100
"""Rows from which the delimiter is recognised."""
_SIDE_NAMES = (("source", "src", "original", "source text"), ("target", "tgt", "trg", "translation", "target text"))
_AMBIGUOUS_NAMES = frozenset({"id", "nr", "no"})
"""Usual names of columns with numbers that are language codes, too: Indonesian, South Ndebele, Norwegian."""
_COLUMN_CODE = re.compile("[a-z]{2}(?:-[a-z]{2})?")

Row = tuple[int, list[str]]
"""The number of a row's last line, and its fields."""


@dataclass(frozen=True)
class CsvLayout:
    """How the fields of a file are separated, and which two of them are the sides."""

    delimiter: str
    header: tuple[str, ...] | None
    """The names of the columns, or None without a header row."""
    columns: tuple[int, int]

    def __str__(self) -> str:
        separated = f"CSV with {DELIMITERS[self.delimiter]} between the fields"
        source, target = self.columns
        if self.header is None:
            return f"{separated}, no header row: column {source + 1} is the source, column {target + 1} the target"
        names = f"{self.header[source]!r} is the source, {self.header[target]!r} the target"
        return f"{separated} and a header row: {names}"


def read_csv(path: Path, languages: Languages, encoding: str | None) -> PairIterator:
    """One pair per row. Line breaks in quoted fields become spaces, and empty lines are skipped."""
    lines = _lines(path, encoding)
    head = list(islice(lines, CHECKED_ROWS))
    delimiter = _find_delimiter(head)
    rows = _rows(_chained(head, lines), delimiter, path)
    number, first = next(rows, (1, []))
    if not first:
        return
    layout = _find_layout(delimiter, first, languages, path, number)
    if layout.header is None:
        yield _sides(first, layout, path, number)
    for number, row in rows:
        yield _sides(row, layout, path, number)


def csv_layout(path: Path, languages: Languages, encoding: str | None) -> CsvLayout | None:
    """The layout of a file, or None if it is empty."""
    head = list(islice(_lines(path, encoding), CHECKED_ROWS))
    delimiter = _find_delimiter(head)
    number, first = next(_rows(iter(head), delimiter, path), (1, []))
    return _find_layout(delimiter, first, languages, path, number) if first else None


def languages_in_header(path: Path, encoding: str | None) -> tuple[str, str] | None:
    """The two language codes among the names of the columns, if there are exactly two. Of more, usual names of columns
    with numbers do not count."""
    head = list(islice(_lines(path, encoding), CHECKED_ROWS))
    _, first = next(_rows(iter(head), _find_delimiter(head), path), (1, []))
    codes = [name for name in _normalized(first) if _is_column_of_language(name)]
    if len(codes) > 2:
        codes = [code for code in codes if code not in _AMBIGUOUS_NAMES]
    return (codes[0], codes[1]) if len(codes) == 2 and codes[0] != codes[1] else None


def _lines(path: Path, encoding: str | None) -> Iterator[str]:
    return (f"{line.decode('utf-8', 'surrogateescape')}\n" for line in LineReader(path, encoding))


def _chained(head: list[str], rest: Iterator[str]) -> Iterator[str]:
    yield from head
    yield from rest


def _rows(lines: Iterator[str], delimiter: str, path: Path) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        # The csv module states neither the row nor its beginning, only the line that it has come to.
        raise CorpusError(
            f"is not valid CSV up to this line ({error}): put fields with quotation marks or line breaks in quotation "
            'marks, and write "" for each mark in them',
            path,
            reader.line_num,
        ) from None


def _find_delimiter(head: list[str]) -> str:
    """The delimiter that gives a header row, or else most rows the same number of fields, two if possible."""

    def fit(delimiter: str) -> tuple[bool, int, bool]:
        rows: list[list[str]] = []
        with contextlib.suppress(csv.Error):
            rows.extend(row for row in csv.reader(head, delimiter=delimiter) if row)
        if not rows:
            return False, 0, False
        columns, times = Counter(map(len, rows)).most_common(1)[0]
        names_two_sides = sum(map(_is_column_name, set(_normalized(rows[0])))) >= 2
        return (names_two_sides, times, columns == 2) if columns > 1 else (names_two_sides, 0, False)

    return max(DELIMITERS, key=fit)


def _normalized(row: list[str]) -> list[str]:
    return [field.strip().lower().replace("_", "-") for field in row]


def _is_column_of_language(name: str) -> bool:
    """True for two letters, with a region or not: columns of other names are too often no languages."""
    return _COLUMN_CODE.fullmatch(name) is not None and is_code(name)


def _is_column_name(name: str) -> bool:
    return _is_column_of_language(name) or any(name in side for side in _SIDE_NAMES)


def _find_layout(delimiter: str, first: list[str], languages: Languages, path: Path, line: int) -> CsvLayout:
    names = _normalized(first)
    columns = _named_columns(names, languages)
    if columns is not None:
        return CsvLayout(delimiter, tuple(first), columns)
    if len(first) == 2:
        if all(map(_is_column_of_language, names)):
            raise CorpusError(
                f"wrong languages: its columns are {' and '.join(names)}, not {languages.source} and "
                f"{languages.target}: choose them with --languages",
                path,
                line,
            )
        return CsvLayout(delimiter, None, (0, 1))
    columns_found = f"{len(first)} column{'s' * (len(first) != 1)}"
    raise CorpusError(
        f"has {columns_found} and no header row that names two of them {languages.source} and {languages.target}: "
        "add these names above the columns, or keep two columns, separated by commas, semicolons or tabs",
        path,
        line,
    )


def _named_columns(names: list[str], languages: Languages) -> tuple[int, int] | None:
    """The columns of the two languages, by code, by English name, or by words such as `source` and `target`."""
    codes = (languages.source, languages.target)
    by_code = [find_language(code, names, other) for code, other in (codes, codes[::-1])]
    by_name = [language_name(code).lower() for code in codes]
    by_side = [next((name for name in side if name in names), None) for side in _SIDE_NAMES]
    for source, target in (by_code, by_name, by_side):
        if source is not None and target is not None and source in names and target in names and source != target:
            return names.index(source), names.index(target)
    return None


def _sides(row: list[str], layout: CsvLayout, path: Path, line: int) -> tuple[bytes, bytes]:
    source, target = layout.columns
    expected = 2 if layout.header is None else len(layout.header)
    if len(row) != expected:
        raise CorpusError(
            f"has {len(row)} field{'s' * (len(row) != 1)}, but the first row has {expected}: put fields that contain "
            f"{DELIMITERS[layout.delimiter]} in quotation marks",
            path,
            line,
        )
    return encode_line(row[source]), encode_line(row[target])

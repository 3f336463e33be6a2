"""CSV: delimiters, header rows and quoted fields are recognised, and damaged rows are reported."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.csv_format import DELIMITERS, csv_layout, languages_in_header, read_csv
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")


def save(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def read(path: Path, languages: Languages = EN_DE, encoding: str | None = None) -> list[tuple[str, str]]:
    return [(source.decode(), target.decode()) for source, target in read_csv(path, languages, encoding)]


def failure(path: Path) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        read(path)
    return caught.value


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("header", ["en{}de", "English{}German", "Source{}Target", "en_GB{}de-AT", None])
def test_delimiter_and_header_row_are_recognised(delimiter: str, header: str | None, tmp_path: Path) -> None:
    rows = [("One, two; three\t.", "Eins, zwei; drei\t."), ('He says "no".', "Er sagt\nnein.")]
    table = io.StringIO()
    csv.writer(table, delimiter=delimiter).writerows(rows)
    path = save(tmp_path, ("" if header is None else header.format(delimiter) + "\n") + table.getvalue())
    assert read(path) == [rows[0], ('He says "no".', "Er sagt nein.")]
    layout = csv_layout(path, EN_DE, None)
    assert layout is not None
    assert DELIMITERS[delimiter] in str(layout)
    assert ("no header row" in str(layout)) == (header is None)


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    path = save(tmp_path, "id;de;note;en\n1;Guten Morgen;x;Good morning\n")
    assert read(path) == [("Good morning", "Guten Morgen")]
    assert read(path, Languages("de", "en")) == [("Guten Morgen", "Good morning")]


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("id;en;de", ("en", "de")), ("Nr;de;en_GB", ("de", "en-gb")), ("id;no;note;fr;en", ("fr", "en")),
        ("id;en", ("id", "en")), ("en;no", ("en", "no")), ("id;en;de;fr", None), ("id;en;no", None), ("id;note", None),
    ],
)  # fmt: skip
def test_two_languages_of_the_header_are_those_of_the_file(
    header: str, languages: tuple[str, str] | None, tmp_path: Path
) -> None:
    path = save(tmp_path, f"{header}\n{';'.join('x' * len(header.split(';')))}\n")
    assert languages_in_header(path, None) == languages


def test_another_encoding_is_converted(tmp_path: Path) -> None:
    path = save(tmp_path, "en;de\nship;Öl “x”\n", "cp1252")
    assert read(path, encoding="cp1252") == [("ship", "Öl “x”")]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"))


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), st.sampled_from(sorted(DELIMITERS)), st.booleans())
def test_any_fields_that_the_csv_module_writes_are_read_back(
    rows: list[tuple[str, str]], delimiter: str, quote_all: bool
) -> None:
    table = io.StringIO()
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(table, delimiter=delimiter, quoting=quoting).writerows([("en", "de"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        assert read(save(Path(folder), table.getvalue())) == rows


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("a;b;c\nd;e;f\n", 1, "add these names above the columns"),
        ("only text\n", 1, "keep two columns"),
        ("en,fr\na,b\n", 1, "wrong languages: its columns are en and fr"),
        ("en,de\na,b\na,b,c\n", 3, "put fields that contain commas in quotation marks"),
        ('en,de\n"a" x,b\n', 2, 'write "" for each mark'),
        ('en,de\na,"b\nc\n', 3, "is not valid CSV"),
    ],
)
def test_a_damaged_table_is_reported_with_its_line_and_a_remedy(
    text: str, line: int, remedy: str, tmp_path: Path
) -> None:
    error = failure(save(tmp_path, text))
    assert remedy in str(error)
    assert error.line == line


def test_an_empty_table_has_no_layout(tmp_path: Path) -> None:
    path = save(tmp_path, "\n\n")
    assert csv_layout(path, EN_DE, None) is None
    assert read(path) == []

"""Sources from command-line arguments, and checks before reading."""

import contextlib
import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.corpus.sources import (
    FORMATS,
    Languages,
    Source,
    check_readable,
    fingerprint,
    is_standard_input,
    read_pairs,
    sources_from_arguments,
)
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"a\tb\n")


def parse(
    *arguments: str, languages: Languages | None = None, format: str | None = None
) -> tuple[list[tuple[str, str, float]], Languages]:
    sources, found = sources_from_arguments(arguments, languages, format)
    return [(",".join(map(str, source.paths)), source.format, source.weight) for source in sources], found


def problem(*arguments: str, languages: Languages | None = None, format: str | None = None) -> str:
    with pytest.raises(CorpusError) as caught:
        sources_from_arguments(arguments, languages, format)
    return str(caught.value)


# Arguments


@pytest.mark.parametrize(
    ("first", "second", "format"),
    [
        ("train.en", "train.de", "lines"),
        ("train.en.xz", "train.de.xz", "lines"),
        ("train.en.gz", "train.de.zst", "lines"),
        ("corpus.en-de.en", "corpus.en-de.de", "lines"),
        ("news-commentary-v11.de-en.en", "news-commentary-v11.de-en.de", "lines"),
        ("train_en.txt", "train_de.txt", "lines"),
        ("en.txt", "de.txt", "lines"),
        ("a/en/text", "a/de/text", "lines"),
        ("train.tags.en-de.en", "train.tags.en-de.de", "tags"),
        ("newstest2013-src.en.sgm", "newstest2013-ref.de.sgm", "sgm"),
        ("newstest2014-deen-src.en.sgm.gz", "newstest2014-deen-ref.de.sgm.gz", "sgm"),
        ("IWSLT17.TED.tst2010.en-de.en.xml", "IWSLT17.TED.tst2010.en-de.de.xml", "sgm"),
    ],
)
def test_consecutive_files_that_differ_in_the_language_are_a_pair(
    first: str, second: str, format: str, folder: Path
) -> None:
    touch(first, second)
    assert parse(first, second) == ([(f"{first},{second}", format, 1.0)], EN_DE)
    assert parse(f"{first},{second}") == ([(f"{first},{second}", format, 1.0)], EN_DE)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("x.en-de.tsv", "tsv"),
        ("x.en-de.tsv.bz2", "tsv"),
        ("x_en-de.jsonl", "jsonl"),
        ("en-de.json.gz", "jsonl"),
        ("x-en-de.tmx", "tmx"),
        ("my.en_de.po", "po"),
        ("x.en-de.MO", "mo"),
    ],
)
def test_format_and_languages_come_from_the_file_name(name: str, format: str, folder: Path) -> None:
    touch(name)
    assert parse(name) == ([(name, format, 1.0)], EN_DE)


def test_several_sources_with_weights(folder: Path) -> None:
    touch("a.en", "a.de", "b.en", "b.de", "c.en-de.tsv", "d.tmx")
    sources, languages = parse("a.en,a.de@2", "b.en", "b.de@0.5", "c.en-de.tsv@1e1", "d.tmx")
    assert sources == [
        ("a.en,a.de", "lines", 2.0),
        ("b.en,b.de", "lines", 0.5),
        ("c.en-de.tsv", "tsv", 10.0),
        ("d.tmx", "tmx", 1.0),
    ]
    assert languages == EN_DE


def test_an_existing_file_name_may_contain_a_comma_or_at_sign(folder: Path) -> None:
    touch("a,b.tsv", "c@2.tsv", "d@2", "e,1.en", "e,1.de", "dir@home/x.tsv")
    assert parse("a,b.tsv", "c@2.tsv", "dir@home/x.tsv@3", languages=EN_DE)[0] == [
        ("a,b.tsv", "tsv", 1.0),
        ("c@2.tsv", "tsv", 1.0),
        ("dir@home/x.tsv", "tsv", 3.0),
    ]
    assert parse("a,b.tsv@2", languages=EN_DE)[0] == [("a,b.tsv", "tsv", 2.0)]
    assert parse("d@2", languages=EN_DE, format="tsv")[0] == [("d@2", "tsv", 1.0)]
    assert parse("e,1.en,e,1.de@4") == ([("e,1.en,e,1.de", "lines", 4.0)], EN_DE)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e999"])
def test_a_weight_must_be_finite_and_above_zero(weight: str, folder: Path) -> None:
    touch("a.tsv")
    assert "not a finite number above 0" in problem(f"a.tsv@{weight}", languages=EN_DE)


def test_a_weight_must_be_a_number(folder: Path) -> None:
    touch("a.en", "a.de")
    assert "'two' is not a weight" in problem("a.en,a.de@two")


def test_the_direction_decides_which_file_is_the_source_side(folder: Path) -> None:
    touch("a.de", "a.en")
    assert parse("a.de", "a.en", languages=EN_DE) == ([("a.en,a.de", "lines", 1.0)], EN_DE)
    assert parse("a.de,a.en", languages=EN_DE) == ([("a.en,a.de", "lines", 1.0)], EN_DE)
    assert parse("a.de", "a.en")[1] == Languages("de", "en")


def test_file_names_may_have_regions(folder: Path) -> None:
    touch("a.en", "a.pt_BR", "b.pt-BR", "b.pt-PT")
    assert parse("a.en", "a.pt_BR")[1] == Languages("en", "pt-BR")
    assert parse("a.en", "a.pt_BR", languages=Languages("en", "pt"))[1] == Languages("en", "pt")
    swapped = Languages("pt-PT", "pt-BR")
    assert parse("b.pt-BR", "b.pt-PT", languages=swapped)[0] == [("b.pt-PT,b.pt-BR", "lines", 1.0)]


def test_files_joined_by_a_comma_may_have_any_names_if_the_languages_are_given(folder: Path) -> None:
    touch("english.txt", "german.txt", "x.aa", "x.ab")
    assert parse("english.txt,german.txt", languages=EN_DE)[0] == [("english.txt,german.txt", "lines", 1.0)]
    assert parse("x.aa,x.ab", languages=EN_DE)[0] == [("x.aa,x.ab", "lines", 1.0)]
    assert "no languages in the file name" in problem("english.txt,german.txt")


def test_conflicting_file_names_are_an_error(folder: Path) -> None:
    touch("a.en", "a.de", "b.de", "b.en", "c.en", "c.fr")
    assert "several directions" in problem("a.en", "a.de", "b.de", "b.en")
    assert "a.en,a.de: en to de; c.en,c.fr: en to fr" in problem("a.en", "a.de", "c.en,c.fr")
    assert "the names imply en and fr, not en and de" in problem("c.en", "c.fr", languages=EN_DE)


def test_one_file_formats_are_not_paired(folder: Path) -> None:
    touch("a.en.tsv", "a.de.tsv", "news.tmx", "news.tsv")
    assert len(parse("a.en.tsv", "a.de.tsv", languages=EN_DE)[0]) == 2
    assert len(parse("news.tmx", "news.tsv", languages=EN_DE)[0]) == 2
    assert "tsv holds both sides in one file" in problem("a.en.tsv,a.de.tsv")


def test_a_given_format_overrides_the_file_name(folder: Path) -> None:
    touch("a.en", "a.de", "pairs.txt", "c.en.tsv", "c.de.tsv")
    assert parse("pairs.txt", languages=EN_DE, format="tsv")[0] == [("pairs.txt", "tsv", 1.0)]
    assert parse("a.en", "a.de", format="tags")[0] == [("a.en,a.de", "tags", 1.0)]
    assert parse("c.en.tsv", "c.de.tsv", format="lines")[0] == [("c.en.tsv,c.de.tsv", "lines", 1.0)]
    assert "lines has one file per side" in problem("pairs.txt", languages=EN_DE, format="lines")
    assert "choose one of lines, tsv" in problem("pairs.txt", format="xls")


def test_incomplete_arguments_are_reported_with_a_remedy(folder: Path) -> None:
    touch("a.en", "pairs.txt", "a.sgm")
    assert "give both sides, as a.en,OTHER" in problem("a.en", languages=EN_DE)
    assert "does not imply a format" in problem("pairs.txt", languages=EN_DE)
    assert "sgm has one file per side" in problem("a.sgm", languages=EN_DE)
    assert "with one comma" in problem("a.en,b.en,c.en", languages=EN_DE)
    assert "with one comma" in problem("a.en,", languages=EN_DE)
    assert "no corpus is given" in problem()


def test_all_problems_are_reported_at_once(folder: Path) -> None:
    Path("sub.tsv").mkdir()
    message = problem("no.en", "no.de", "sub.tsv", "x.tsv@0")
    assert message.startswith("4 problems")
    for part in ("no.en: the file does not exist", "no.de: the file does not", "sub.tsv: is a folder", "the weight 0"):
        assert part in message


def test_the_same_file_given_twice_is_an_error(folder: Path) -> None:
    touch("a.tsv")
    assert "given 2 times: give it once, with @2" in problem("a.tsv", "a.tsv", languages=EN_DE)
    assert "given 2 times" in problem("-", "-", languages=EN_DE)


def test_source_names_are_short_and_distinct(folder: Path) -> None:
    arguments = [
        "x/train.en",
        "x/train.de",
        "y/train.en.xz",
        "y/train.de.xz",
        "z.en-de.tsv",
        "newstest2013.en,newstest2013.de",
    ]
    touch(*",".join(arguments).split(","))
    sources, _ = sources_from_arguments(arguments, None, None)
    assert [source.name for source in sources] == ["x/train", "y/train", "z.en-de", "newstest2013"]
    touch("y/train.tsv")
    sources, _ = sources_from_arguments([*arguments, "y/train.tsv"], EN_DE, None)
    assert [source.name for source in sources] == ["x/train", "y/train", "z.en-de", "newstest2013", "y/train-2"]


def test_invalid_file_names_are_reported(folder: Path) -> None:
    assert "cannot be read" in problem("a" * 5000 + ".tsv", languages=EN_DE)
    assert "cannot be read" in problem("\0.tsv", languages=EN_DE)


# Standard input


@pytest.mark.parametrize(
    ("format", "content"),
    [(None, b"a\tb\n"), ("jsonl", b'{"en": "a", "de": "b"}'), ("tsv", gzip.compress(b"a\tb\n", mtime=0))],
)
def test_standard_input_accepts_one_file_formats(
    format: str | None, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    (source,), _ = sources_from_arguments(["-@2"], EN_DE, format)
    assert is_standard_input(source)
    assert (source.name, source.weight) == ("standard-input", 2.0)
    assert list(read_pairs(source, EN_DE)) == [(b"a", b"b")]
    assert fingerprint(source) != fingerprint(source)


def test_standard_input_cannot_be_one_side_of_a_pair(folder: Path) -> None:
    touch("a.de")
    assert "standard input cannot be one side" in problem("-,a.de", languages=EN_DE)


# Checks


def test_unreadable_files_are_reported_before_iteration(tmp_path: Path) -> None:
    missing = Source("x", (tmp_path / "no.en", tmp_path / "no.de"), "lines")
    with pytest.raises(CorpusError, match=r"2 problems(.|\n)*no\.en: the file does not exist(.|\n)*no\.de"):
        read_pairs(missing, EN_DE)
    with pytest.raises(CorpusError, match="is a folder"):
        read_pairs(Source("x", (tmp_path,), "tsv"), EN_DE)
    with pytest.raises(CorpusError, match="the format 'xls' is unknown"):
        check_readable(Source("x", (tmp_path,), "xls"))


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Drop root permissions for a while: root can read every file."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_missing_read_permission_is_reported_before_reading() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "a.tsv"
        path.write_bytes(b"a\tb\n")
        path.chmod(0)
        with ordinary_user(), pytest.raises(CorpusError, match="chmod"):
            check_readable(Source("x", (path,), "tsv"))


def write_synthesis(folder: Path, **corpus: str) -> Path:
    folder.mkdir()
    (folder / "synthesis.json").write_text(json.dumps({"corpus": corpus}))
    for language in ("en", "de"):
        (folder / f"corpus.{language}").write_text("a\n")
    return folder


def test_the_folder_of_a_synthesis_stands_for_its_files_and_states_their_direction(tmp_path):
    back = write_synthesis(tmp_path / "back", source="de", target="en", synthetic="de")
    [source], languages = sources_from_arguments([f"{back}@0.5"], None, None, "latin-1")
    assert languages == Languages("de", "en")
    assert source == Source(
        "back", (back / "corpus.de", back / "corpus.en"), "lines", 0.5, encoding=None, synthetic="de"
    )
    [reversed_source], _ = sources_from_arguments([str(back)], Languages("en", "de"), None)
    assert reversed_source.paths == source.paths[::-1]


def test_a_synthesis_that_is_not_finished_or_of_other_languages_is_refused(tmp_path):
    begun = write_synthesis(tmp_path / "begun")
    french = write_synthesis(tmp_path / "french", source="fr", target="en", synthetic="fr")
    with pytest.raises(CorpusError, match="begun: its synthesis is not finished"):
        sources_from_arguments([str(begun)], None, None)
    with pytest.raises(CorpusError, match=r"french/corpus.fr,.*imply fr and en, not en and de"):
        sources_from_arguments([str(french)], Languages("en", "de"), None)


@pytest.mark.parametrize("format", FORMATS)
def test_the_number_of_files_must_match_the_format(format: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\n")
    count = 1 if format in {"lines", "sgm", "tags"} else 2
    with pytest.raises(CorpusError, match="give"):
        check_readable(Source("x", (path,) * count, format))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_the_check_accepts_a_named_pipe_and_does_not_open_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    check_readable(Source("x", (path,), "tsv"))


def test_a_fingerprint_depends_on_the_file_and_not_on_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tb\n")
    first = fingerprint(Source("x", (path,), "tsv"))
    assert first == fingerprint(Source("y", (path,), "tsv"))
    assert json.loads(json.dumps(first)) == [["a.tsv", 4, path.stat().st_mtime_ns]]
    (tmp_path / "sub").mkdir()
    moved = path.rename(tmp_path / "sub" / "a.tsv")
    assert fingerprint(Source("x", (moved,), "tsv")) == first
    moved.write_bytes(b"a\tbc\n")
    assert fingerprint(Source("x", (moved,), "tsv")) != first

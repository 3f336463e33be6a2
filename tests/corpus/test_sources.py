"""Command-line words to sources, and checks before reading."""

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

from dragoman.corpus.language_codes import codes_that_differ, direction_in, find_language, same_language
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
    *words: str, languages: Languages | None = None, format: str | None = None
) -> tuple[list[tuple[str, str, float]], Languages]:
    sources, found = sources_from_arguments(words, languages, format)
    return [(",".join(map(str, source.paths)), source.format, source.weight) for source in sources], found


def complaint(*words: str, languages: Languages | None = None, format: str | None = None) -> str:
    with pytest.raises(CorpusError) as caught:
        sources_from_arguments(words, languages, format)
    return str(caught.value)


# Words


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
def test_neighbours_that_differ_in_the_language_are_a_pair(first: str, second: str, format: str, folder: Path) -> None:
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
def test_format_and_languages_are_read_off_one_name(name: str, format: str, folder: Path) -> None:
    touch(name)
    assert parse(name) == ([(name, format, 1.0)], EN_DE)


def test_weights_and_several_sources(folder: Path) -> None:
    touch("a.en", "a.de", "b.en", "b.de", "c.en-de.tsv", "d.tmx")
    sources, languages = parse("a.en,a.de@2", "b.en", "b.de@0.5", "c.en-de.tsv@1e1", "d.tmx")
    assert sources == [
        ("a.en,a.de", "lines", 2.0),
        ("b.en,b.de", "lines", 0.5),
        ("c.en-de.tsv", "tsv", 10.0),
        ("d.tmx", "tmx", 1.0),
    ]
    assert languages == EN_DE


def test_a_name_with_comma_or_at_that_exists_is_taken_as_it_is(folder: Path) -> None:
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
def test_a_weight_is_finite_and_above_zero(weight: str, folder: Path) -> None:
    touch("a.tsv")
    assert "not a finite number above 0" in complaint(f"a.tsv@{weight}", languages=EN_DE)


def test_a_weight_is_a_number(folder: Path) -> None:
    touch("a.en", "a.de")
    assert "'two' is no weight" in complaint("a.en,a.de@two")


def test_given_languages_put_the_source_side_first(folder: Path) -> None:
    touch("a.de", "a.en")
    assert parse("a.de", "a.en", languages=EN_DE) == ([("a.en,a.de", "lines", 1.0)], EN_DE)
    assert parse("a.de,a.en", languages=EN_DE) == ([("a.en,a.de", "lines", 1.0)], EN_DE)
    assert parse("a.de", "a.en")[1] == Languages("de", "en")


def test_regions_in_names(folder: Path) -> None:
    touch("a.en", "a.pt_BR", "b.pt-BR", "b.pt-PT")
    assert parse("a.en", "a.pt_BR")[1] == Languages("en", "pt-BR")
    assert parse("a.en", "a.pt_BR", languages=Languages("en", "pt"))[1] == Languages("en", "pt")
    swapped = Languages("pt-PT", "pt-BR")
    assert parse("b.pt-BR", "b.pt-PT", languages=swapped)[0] == [("b.pt-PT,b.pt-BR", "lines", 1.0)]


def test_a_pair_with_a_comma_may_bear_any_names_if_the_languages_are_given(folder: Path) -> None:
    touch("english.txt", "german.txt", "x.aa", "x.ab")
    assert parse("english.txt,german.txt", languages=EN_DE)[0] == [("english.txt,german.txt", "lines", 1.0)]
    assert parse("x.aa,x.ab", languages=EN_DE)[0] == [("x.aa,x.ab", "lines", 1.0)]
    assert "no languages in the name" in complaint("english.txt,german.txt")


def test_names_that_conflict_are_an_error(folder: Path) -> None:
    touch("a.en", "a.de", "b.de", "b.en", "c.en", "c.fr")
    assert "several directions" in complaint("a.en", "a.de", "b.de", "b.en")
    assert "a.en,a.de: en to de; c.en,c.fr: en to fr" in complaint("a.en", "a.de", "c.en,c.fr")
    assert "en and fr by their names, not en and de" in complaint("c.en", "c.fr", languages=EN_DE)


def test_one_file_formats_are_never_joined(folder: Path) -> None:
    touch("a.en.tsv", "a.de.tsv", "news.tmx", "news.tsv")
    assert len(parse("a.en.tsv", "a.de.tsv", languages=EN_DE)[0]) == 2
    assert len(parse("news.tmx", "news.tsv", languages=EN_DE)[0]) == 2
    assert "tsv holds both sides in one file" in complaint("a.en.tsv,a.de.tsv")


def test_a_forced_format_goes_before_the_name(folder: Path) -> None:
    touch("a.en", "a.de", "pairs.txt", "c.en.tsv", "c.de.tsv")
    assert parse("pairs.txt", languages=EN_DE, format="tsv")[0] == [("pairs.txt", "tsv", 1.0)]
    assert parse("a.en", "a.de", format="tags")[0] == [("a.en,a.de", "tags", 1.0)]
    assert parse("c.en.tsv", "c.de.tsv", format="lines")[0] == [("c.en.tsv,c.de.tsv", "lines", 1.0)]
    assert "lines is one file a side" in complaint("pairs.txt", languages=EN_DE, format="lines")
    assert "choose one of lines, tsv" in complaint("pairs.txt", format="csv")


def test_a_single_side_and_an_unknown_name_ask_for_what_is_missing(folder: Path) -> None:
    touch("a.en", "pairs.txt", "a.sgm")
    assert "give both sides, as a.en,OTHER" in complaint("a.en", languages=EN_DE)
    assert "does not tell the format" in complaint("pairs.txt", languages=EN_DE)
    assert "sgm is one file a side" in complaint("a.sgm", languages=EN_DE)
    assert "one comma between" in complaint("a.en,b.en,c.en", languages=EN_DE)
    assert "one comma between" in complaint("a.en,", languages=EN_DE)
    assert "no corpus is named" in complaint()


def test_all_problems_come_at_once(folder: Path) -> None:
    Path("sub.tsv").mkdir()
    message = complaint("no.en", "no.de", "sub.tsv", "x.tsv@0")
    assert message.startswith("4 problems")
    for part in ("no.en: there is no such file", "no.de: there is no such", "sub.tsv: is a folder", "the weight 0"):
        assert part in message


def test_the_same_files_twice_are_better_weighted(folder: Path) -> None:
    touch("a.tsv")
    assert "given 2 times: give it once, with @2" in complaint("a.tsv", "a.tsv", languages=EN_DE)
    assert "given 2 times" in complaint("-", "-", languages=EN_DE)


def test_names_of_sources_are_short_and_distinct(folder: Path) -> None:
    words = [
        "x/train.en",
        "x/train.de",
        "y/train.en.xz",
        "y/train.de.xz",
        "z.en-de.tsv",
        "newstest2013.en,newstest2013.de",
    ]
    touch(*",".join(words).split(","))
    sources, _ = sources_from_arguments(words, None, None)
    assert [source.name for source in sources] == ["x/train", "y/train", "z.en-de", "newstest2013"]
    touch("y/train.tsv")
    sources, _ = sources_from_arguments([*words, "y/train.tsv"], EN_DE, None)
    assert [source.name for source in sources] == ["x/train", "y/train", "z.en-de", "newstest2013", "y/train-2"]


def test_words_too_long_for_a_file_name_are_no_crash(folder: Path) -> None:
    assert "cannot be read" in complaint("a" * 5000 + ".tsv", languages=EN_DE)
    assert "cannot be read" in complaint("\0.tsv", languages=EN_DE)


# Standard input


@pytest.mark.parametrize(
    ("format", "content"),
    [(None, b"a\tb\n"), ("jsonl", b'{"en": "a", "de": "b"}'), ("tsv", gzip.compress(b"a\tb\n"))],
)
def test_standard_input_takes_one_file_formats(
    format: str | None, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    (source,), _ = sources_from_arguments(["-@2"], EN_DE, format)
    assert is_standard_input(source)
    assert (source.name, source.weight) == ("standard-input", 2.0)
    assert list(read_pairs(source, EN_DE)) == [(b"a", b"b")]
    assert fingerprint(source) != fingerprint(source)


def test_standard_input_cannot_be_one_side(folder: Path) -> None:
    touch("a.de")
    assert "standard input cannot be one side" in complaint("-,a.de", languages=EN_DE)


# Checks


def test_what_cannot_be_read_is_reported_by_the_call(tmp_path: Path) -> None:
    missing = Source("x", (tmp_path / "no.en", tmp_path / "no.de"), "lines")
    with pytest.raises(CorpusError, match=r"2 problems(.|\n)*no\.en: there is no such file(.|\n)*no\.de"):
        read_pairs(missing, EN_DE)
    with pytest.raises(CorpusError, match="is a folder"):
        read_pairs(Source("x", (tmp_path,), "tsv"), EN_DE)
    with pytest.raises(CorpusError, match="there is no format 'csv'"):
        check_readable(Source("x", (tmp_path,), "csv"))


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """An administrator may read everything: be someone else for a while."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_without_rights_is_reported_before_reading() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "a.tsv"
        path.write_bytes(b"a\tb\n")
        path.chmod(0)
        with ordinary_user(), pytest.raises(CorpusError, match="chmod"):
            check_readable(Source("x", (path,), "tsv"))


@pytest.mark.parametrize("format", FORMATS)
def test_the_number_of_files_must_fit_the_format(format: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\n")
    count = 1 if format in {"lines", "sgm", "tags"} else 2
    with pytest.raises(CorpusError, match="give"):
        check_readable(Source("x", (path,) * count, format))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_may_be_read_and_is_not_opened_by_the_check(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    check_readable(Source("x", (path,), "tsv"))


def test_a_fingerprint_changes_with_the_file_and_not_with_the_folder(tmp_path: Path) -> None:
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


# Codes


def test_codes_of_one_language() -> None:
    assert same_language("en-US", "EN")
    assert not same_language("en", "de")
    assert find_language("de", ["fr", "de-AT", "DE"], "en") == "DE"
    assert find_language("de", ["fr", "de_AT"], "en") == "de_AT"
    assert find_language("de", ["de_score_of_it!"], "en") is None
    assert find_language("pt-BR", ["pt-PT"], "pt-PT") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.src", "a.tgt"),
        ("a.en", "b.de"),
        ("a.en", "a.en"),
        ("part.v1", "part.v2"),
        ("x.raw", "x.tok"),
        ("a.en", "a.xx"),
    ],
)
def test_other_differences_are_not_languages(first: str, second: str) -> None:
    assert codes_that_differ(first, second) is None


def test_a_direction_in_a_name() -> None:
    assert direction_in("wmt16-en-de.tsv") == ("en", "de")
    assert direction_in("my-deu_eng.tsv") == ("deu", "eng")
    assert direction_in("train.raw-tok.tsv") is None
    assert direction_in("europarl.tsv") is None

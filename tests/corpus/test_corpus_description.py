"""Corpus descriptions: validation of TOML files."""

from pathlib import Path

import pytest

from dragoman.corpus import catalog
from dragoman.errors import CorpusError

VALID = 'files = ["x.en", "x.de"]\nformat = "lines"\n'
ARCHIVE = 'url = "https://h.example/x.tgz"\nmembers = ["a", "b"]\nformat = "lines"\n'


def described(folder: Path, text: str, head: str = 'source = "en"\ntarget = "de"\n') -> str:
    path = folder / "mine.toml"
    path.write_text(head + text)
    return str(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (VALID + 'licens = "x"', "train 1: licens is unknown, did you mean licence"),
        (VALID + 'url = "https://h.example/x"', "set exactly one of url, files and generator"),
        ('format = "lines"', "set exactly one of url, files and generator"),
        ('generator = "magic"', "generator 'magic' is unknown, known are demo"),
        ('files = "x"\nformat = "docx"', "format 'docx' is unknown, known are lines"),
        ('files = "x"\nformat = "lines"', "lines needs 2 files, but 1 are given"),
        ('files = ["x", "y"]\nformat = "tsv"', "tsv needs 1 file, but 2 are given"),
        (ARCHIVE + 'sha256 = "123"', "sha256 '123' is malformed"),
        (ARCHIVE + "size = [1, 2]", "size must be given once for each url"),
        (ARCHIVE + 'size = "big"', "size must be a number"),
        (VALID + "weight = -1", "weight must be a number"),
        (VALID + "weight = true", "weight must be a number"),
        ('url = "https://h.example/x.tgz"\nformat = "tmx"', "members requires the url of one archive"),
        ('url = "https://h.example/x.tmx"\nmembers = "y"\nformat = "tmx"', "members requires the url of one archive"),
        ('url = "file:///etc/passwd"\nformat = "tmx"', "is not a web address"),
        (VALID + 'pairs = ["en-de"]', "set either pairs in the entries or source and target"),
        ("files = 3\n", "files must be a string or a list of strings"),
    ],
)
def test_an_invalid_entry_is_reported(entry: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        catalog.resolve(described(tmp_path, f"[[train]]\n{entry}"), cache=tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no \[\[train\]\] entry"),
        ("[train]\n" + VALID, r"train must be written as \[\[train\]\]"),
        ('source = "en"\n[[train]]\n' + VALID, "two different language codes"),
        ("[[train]]\n" + VALID, "set either pairs in the entries or source and target"),
        ('titel = "x"\n', "the corpus: titel is unknown"),
        ("[[train", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
    ],
)
def test_an_invalid_header_is_reported(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message):
        catalog.resolve(described(tmp_path, text, head=""), cache=tmp_path)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = '[[train]]\nfiles = "x"\nformat = "docx"\nweight = "heavy"\n[[test]]\nformat = "lines"'
    with pytest.raises(CorpusError, match=r"train 1: weight .*; train 1: format .*; test 1: set exactly one"):
        catalog.resolve(described(tmp_path, text), cache=tmp_path)


def test_a_missing_description_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none\.toml: cannot be read \(No such file"):
        catalog.resolve(str(tmp_path / "none.toml"))

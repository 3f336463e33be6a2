"""Encodings: text is converted while reading, and the likely encoding of text that is not UTF-8 is named."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus import compression
from dragoman.corpus.text_encodings import check_encoding, likely_encoding, read_text_blocks
from dragoman.errors import CorpusError

GERMAN = "Das Schiff fährt um zwölf über die Förde.\nGrüße\nOhne Umlaut.\n"


@pytest.mark.parametrize(
    ("text", "encoding", "language", "expected"),
    [
        (GERMAN, "latin-1", "de", "latin-1"),
        (GERMAN + "„Hallo“ – sagt er …\n", "cp1252", "de", "cp1252"),
        ("Příliš žluťoučký kůň\n", "cp1250", "cs", "cp1250"),
        ("Доброе утро\n", "cp1251", "ru", "cp1251"),
        ("Καλημέρα\n", "cp1253", "el", "cp1253"),
        ("おはようございます\n", "shift_jis", "ja", "shift_jis"),
        ("Good morning\n", "utf-16-le", "en", "utf-16-le"),
        ("Good morning\n", "utf-16-be", "en", "utf-16-be"),
        (GERMAN, "utf-8", "de", None),
    ],
)
def test_the_likely_encoding_of_a_language_is_named(
    text: str, encoding: str, language: str, expected: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding) * 3)
    assert likely_encoding(path, language) == expected


def test_no_encoding_is_guessed_for_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"".join(b"\x81\xa4\xb1\xbe %d\n" % number for number in range(50)))
    assert likely_encoding(path, "de") is None


@given(
    st.text(), st.sampled_from(["utf-16", "utf-16-be", "utf-32", "shift_jis", "latin-1", "gb18030"]), st.integers(1, 9)
)
def test_text_is_converted_across_blocks(text: str, encoding: str, block_bytes: int) -> None:
    content = text.encode(encoding, "ignore")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "BLOCK_BYTES", block_bytes)
        path = Path(folder) / "text"
        path.write_bytes(content)
        if compression.detect_compression(content) is None:
            assert b"".join(read_text_blocks(path, encoding)).decode() == content.decode(encoding)


@pytest.mark.parametrize("name", ["klingon", "base64", "punycode", "idna", "", "zlib"])
def test_an_unknown_encoding_is_refused(name: str) -> None:
    with pytest.raises(CorpusError, match="use for example latin-1"):
        check_encoding(name)


def test_names_of_encodings_are_normalized() -> None:
    assert check_encoding("Latin1") == "iso8859-1"

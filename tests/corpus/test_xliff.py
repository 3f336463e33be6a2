"""XLIFF 1.2 and 2: translated units, without markup, alternatives and untranslated segments."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.sources import Languages
from dragoman.corpus.xliff import read_xliff
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")
VERSION_1 = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en-US" target-language="de-DE" datatype="plaintext" original="a.txt"><body>
  <trans-unit id="1">
    <source>Press <g id="1">the <x id="2"/>key</g><ph id="3">{0}</ph>.</source>
    <target state="final">Drücken Sie <g id="1">die <x id="2"/>Taste</g><ph id="3">{0}</ph>.</target>
    <alt-trans><source>Push.</source><target>Drück.</target></alt-trans>
  </trans-unit>
  <trans-unit id="2"><source>Not yet</source><target state="needs-translation">Not yet</target></trans-unit>
  <trans-unit id="3"><source>No target</source></trans-unit>
</body></file></xliff>"""
VERSION_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="1">
  <segment state="translated"><source>Good <pc id="1">morning</pc>.</source>
    <target>Guten <pc id="1">Morgen</pc>.</target></segment>
  <ignorable><source> </source></ignorable>
  <segment state="initial"><source>Later</source><target>Later</target></segment>
  <mtc:matches xmlns:mtc="urn:m"><mtc:match><source>x</source><target>y</target></mtc:match></mtc:matches>
</unit></file></xliff>"""


def save(folder: Path, text: str) -> Path:
    path = folder / "messages.xlf"
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, languages: Languages = EN_DE) -> list[tuple[str, str]]:
    return [(source.decode(), target.decode()) for source, target in read_xliff(path, languages)]


def test_both_versions_give_their_translated_units(tmp_path: Path) -> None:
    assert read(save(tmp_path, VERSION_1)) == [("Press the key.", "Drücken Sie die Taste.")]
    assert read(save(tmp_path, VERSION_2)) == [("Good morning.", "Guten Morgen.")]


def test_a_file_can_be_read_in_the_reverse_direction(tmp_path: Path) -> None:
    assert read(save(tmp_path, VERSION_2), Languages("de", "en")) == [("Guten Morgen.", "Good morning.")]


def test_wrong_languages_and_missing_targets_are_reported(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="translates en to de, not fr to de"):
        read(save(tmp_path, VERSION_2), Languages("fr", "de"))
    untranslated = VERSION_2.replace("translated", "initial")
    with pytest.raises(CorpusError, match="no translated units"):
        read(save(tmp_path, untranslated))
    with pytest.raises(CorpusError, match="not well-formed XML"):
        read(save(tmp_path, VERSION_1[:-40]))


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    attack = f'<!DOCTYPE xliff [<!ENTITY e SYSTEM "file://{secret}">]>' + VERSION_2.replace("Good", "&e;")
    try:
        pairs = read(save(tmp_path, attack))
    except CorpusError:
        pairs = []
    assert "secret" not in str(pairs)


@given(st.data())
def test_damaged_files_give_pairs_or_a_corpus_error(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([VERSION_1, VERSION_2]))
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 40)))
        noise = st.sampled_from(["", "<", "</target>", "<source>", "<target>", "</file>", "<segment>", "&", "\0", "é"])
        text = text[:begin] + data.draw(noise) + text[end:]
    with tempfile.TemporaryDirectory() as folder:
        message = ""
        try:
            read(save(Path(folder), text))
        except CorpusError as error:
            message = str(error)
        assert "\n" not in message

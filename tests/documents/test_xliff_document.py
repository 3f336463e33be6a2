"""XLIFF: open targets are filled in, finished ones stay."""

import pytest
from benchmarks.documents import to_capitals
from benchmarks.sample_documents import XLIFF_1, XLIFF_2
from lxml import etree
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.xliff_document import parse_xliff

EN_DE = Languages("en", "de")


def in_capitals(content: str, languages: Languages = EN_DE) -> bytes:
    document = parse_xliff(content.encode(), languages)
    return document.render([to_capitals(segment) for segment in document.segments])


def targets(content: bytes) -> dict[str, tuple[str, str | None]]:
    """Text and state of the target of each unit of version 1.2."""
    found = {}
    for unit in etree.fromstring(content).iter("{*}trans-unit"):
        target = unit.find("{*}target")
        found[unit.get("id")] = ("", None) if target is None else ("".join(target.itertext()), target.get("state"))
    return found


def test_open_units_are_filled_in_and_marked_for_review():
    found = targets(in_capitals(XLIFF_1))
    assert found["1"] == ("THE TEACHER  READS A\n [b]BOOK[/b].", "needs-review-translation")
    assert found["5"] == ("OLD TEXT", "needs-review-translation")
    assert found["6"] == ("ONE HOUSE.\n TWO HOUSES.", "needs-review-translation")


def test_finished_units_and_those_that_must_not_be_translated_stay():
    found = targets(in_capitals(XLIFF_1))
    assert found["3"] == ("Fertig", "final")
    assert found["2"] == found["4"] == ("", None)


def test_the_own_library_of_the_format_reads_targets_with_their_inline_elements():
    units = {unit.getid().rpartition("\x04")[2]: unit for unit in xlifffile.parsestring(in_capitals(XLIFF_1)).units}
    elements = [child.tag.rpartition("}")[2] for child in units["1"].rich_target and units["1"].xmlelement.iter("{*}*")]
    assert elements.count("g") == elements.count("x") == elements.count("bpt") == elements.count("ept") == 2
    assert units["5"].target == "OLD TEXT"
    version_2 = Xliff2File.parsestring(in_capitals(XLIFF_2))
    assert any("THE RED" in str(unit.target) for unit in version_2.units)


def test_segments_of_version_2_are_filled_in_with_their_state():
    root = etree.fromstring(in_capitals(XLIFF_2))
    segments = list(root.iter("{*}segment"))
    assert ["".join(segment.find("{*}target").itertext()) for segment in segments[:2]] == [
        "THE RED HOUSE AND MORE.", "A Name HERE",
    ]  # fmt: skip
    assert [segment.get("state") for segment in segments] == ["translated", "translated", None, "final"]
    assert segments[2].find("{*}target") is None
    assert segments[3].find("{*}target").text == "Fertig"
    assert [child.tag.rpartition("}")[2] for child in segments[0].find("{*}target").iter()] == [
        "target", "pc", "ph", "sc", "ec",
    ]  # fmt: skip


def test_languages_of_the_file_must_be_those_of_the_model():
    with pytest.raises(UnreadableError, match="states target-language de, but the model translates from en to fr"):
        in_capitals(XLIFF_1, Languages("en", "fr"))
    with pytest.raises(UnreadableError, match="states srcLang en"):
        in_capitals(XLIFF_2, Languages("fr", "de"))
    assert b'target-language="de"' in in_capitals(XLIFF_1.replace(' target-language="de"', ""))


def test_other_files_are_refused():
    with pytest.raises(UnreadableError, match="not XLIFF"):
        parse_xliff(b"<html/>", EN_DE)
    with pytest.raises(UnreadableError, match="not well-formed"):
        parse_xliff(b"<xliff>", EN_DE)

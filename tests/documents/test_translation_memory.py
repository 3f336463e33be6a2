"""TMX memories gain the variants that are missing."""

from pathlib import Path

import pytest
from benchmarks.documents import to_capitals
from lxml import etree

from dragoman.corpus.sources import Languages
from dragoman.corpus.tmx import XML_LANG
from dragoman.documents.document import UnreadableError
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.translation_memory import parse_tmx

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext"/><body>
<tu tuid="1"><note>stay</note>
<tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1"/> house</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Oui</seg></tuv></tu>
</body></tmx>"""
EN_DE = Languages("en", "de")


def in_capitals(content: str) -> bytes:
    document = parse_tmx(content.encode(), EN_DE)
    return document.render([to_capitals(segment) for segment in document.segments])


def test_a_tmx_memory_gains_target_variants_where_it_had_none():
    root = etree.fromstring(in_capitals(TMX))
    units = [{variant.get(XML_LANG): variant.find("seg") for variant in unit.iter("tuv")} for unit in root.iter("tu")]
    assert etree.tostring(units[0]["de"]) == b'<seg>A <bpt i="1">&lt;b&gt;</bpt>RED<ept i="1"/> HOUSE</seg>'
    assert {code: segment.text for code, segment in units[1].items()} == {"en": "Yes", "de": "Ja"}
    assert list(units[2]) == ["fr"]
    assert root.find(".//note").text == "stay"


@pytest.mark.parametrize(
    ("content", "reason"),
    [("<tmx><body>", "not well-formed"), ("<html/>", "no translation units"), ("", "not well-formed")],
)
def test_an_invalid_file_is_refused_with_the_reason(content, reason):
    with pytest.raises(UnreadableError, match=reason):
        in_capitals(content)


def test_files_with_entities_are_refused():
    secret = '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]>' + TMX.partition("?>")[2].replace("Yes", "&x;")
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE tmx [<!ENTITY a0 "ha">{levels}]><tmx><tu><tuv lang="en"><seg>&a9;</seg></tuv></tu></tmx>'
    for content in (secret, bomb):
        with pytest.raises(UnreadableError) as refusal:
            in_capitals(content)
        assert Path("/etc/hostname").read_text().strip() not in str(refusal.value)


def test_characters_that_xml_does_not_allow_are_replaced_in_a_translation():
    document = parse_tmx(TMX.encode(), EN_DE)
    [segment] = document.segments
    tag = InlineTag(0, 3, segment.tags[0].key)
    assert "a\ufffdb" in document.render([MarkedText("a\uffffb", (tag,))]).decode()

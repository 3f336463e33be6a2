"""Files are translated in their own format, and everything but their text is unchanged."""

import contextlib
from pathlib import Path

import polib
import pytest
from lxml import etree

from dragoman.serving.documents import PO_COMMENT, UnreadableError, parse

PO = """# A head.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n != 1);\\n"

#: main.c:7
msgid "Open %s"
msgstr ""

msgid "Done"
msgstr "Fertig"

#, fuzzy
msgid "Save"
msgstr "Sparen"

msgctxt "files"
msgid "one file"
msgid_plural "{n} files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#~ msgid "Old"
#~ msgstr "Alt"
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext"/><body>
<tu tuid="1"><note>stay</note>
<tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1"/> house</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Oui</seg></tuv></tu>
</body></tmx>"""


def translated(content: str | bytes, extension: str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    document = parse(raw, extension, "en", "de")
    return document.render([text.upper() for text in document.texts]).decode()


def test_plain_text_keeps_its_line_breaks_and_loses_its_byte_order_mark() -> None:
    assert translated("one\r\n\r\n two", "txt") == "ONE\r\n\r\n TWO"
    assert translated(b"\xef\xbb\xbfone", "txt") == "ONE"


def test_a_po_catalog_is_filled_and_existing_translations_stay(tmp_path) -> None:
    (tmp_path / "out.po").write_text(translated(PO, "po"))
    made = {entry.msgid: entry for entry in polib.pofile(str(tmp_path / "out.po"))}
    assert made["Open %s"].msgstr == "OPEN %S"
    assert PO_COMMENT in made["Open %s"].tcomment
    assert made["Open %s"].occurrences == [("main.c", "7")]
    assert made["Done"].msgstr == "Fertig"
    assert not made["Done"].tcomment
    assert made["Save"].msgstr == "SAVE"
    assert made["one file"].msgstr_plural == {0: "ONE FILE", 1: "{N} FILES", 2: "{N} FILES"}
    assert made["one file"].msgctxt == "files"
    assert made["Old"].msgstr == "Alt"


def test_a_tmx_memory_gains_target_variants_where_it_had_none() -> None:
    root = etree.fromstring(translated(TMX, "tmx").encode())
    units = [
        {variant.get("{http://www.w3.org/XML/1998/namespace}lang"): "".join(variant.find("seg").itertext())
         for variant in unit.iter("tuv")}
        for unit in root.iter("tu")
    ]  # fmt: skip
    assert units[0]["de"] == "A RED HOUSE"
    assert units[1] == {"en": "Yes", "de": "Ja"}
    assert units[2] == {"fr": "Oui"}
    assert root.find(".//note").text == "stay"


@pytest.mark.parametrize(
    ("content", "extension", "reason"),
    [
        (b"\xff\xfe", "txt", "not UTF-8"),
        ("This is prose.\n", "po", "not a valid PO catalog"),
        ("<tmx><body>", "tmx", "not well-formed"),
        ("<html/>", "tmx", "no translation units"),
        ("", "tmx", "not well-formed"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_reason(content: str | bytes, extension: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        translated(content, extension)


def test_entities_of_a_hostile_tmx_file_are_not_expanded() -> None:
    secret = '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]>' + TMX.partition("?>")[2].replace("Yes", "&x;")
    assert "ENTITY" in secret
    assert Path("/etc/hostname").read_text().strip() not in translated(secret, "tmx")
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE tmx [<!ENTITY a0 "ha">{levels}]><tmx><tu><tuv lang="en"><seg>&a9;</seg></tuv></tu></tmx>'
    with contextlib.suppress(UnreadableError):  # lxml rejects it, or does not expand the entity.
        assert len(translated(bomb, "tmx")) < 100_000


def test_characters_that_xml_does_not_allow_are_replaced_in_a_translation() -> None:
    document = parse(TMX.encode(), "tmx", "en", "de")
    assert "a\ufffdb" in document.render(["a\uffffb"] * len(document.texts)).decode()

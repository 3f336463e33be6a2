"""PO catalogs: missing translations are filled in, existing ones stay."""

import polib
import pytest
from benchmarks.documents import to_capitals

from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.message_catalog import PO_COMMENT, parse_po

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
EN_DE = Languages("en", "de")


def test_a_po_catalog_is_filled_and_existing_translations_stay(tmp_path):
    document = parse_po(PO.encode(), EN_DE)
    (tmp_path / "out.po").write_bytes(document.render([to_capitals(segment) for segment in document.segments]))
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


def test_other_files_are_refused():
    with pytest.raises(UnreadableError, match="not a valid PO catalog"):
        parse_po(b"This is prose.\n", EN_DE)

"""Translation memories and message catalogues."""

import struct
import tracemalloc
from pathlib import Path

import pytest

from dragoman.corpus import translation_memories
from dragoman.corpus.sources import Languages, Source, read_pairs
from dragoman.corpus.translation_memories import read_mo, read_po, read_tmx
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")
PO_HEAD = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def tmx(*units: str, before: str = "") -> str:
    return f'{before}<tmx version="1.4"><header srclang="en"/><body>\n' + "\n".join(units) + "\n</body></tmx>\n"


def unit(**segments: str) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{c}"><seg>{s}</seg></tuv>' for c, s in segments.items()) + "</tu>"


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs_of_tmx(folder: Path, content: str | bytes, languages: Languages = EN_DE) -> list[tuple[bytes, bytes]]:
    return list(read_tmx(saved(folder / "memory.tmx", content), languages))


# TMX


def test_languages_match_whatever_case_and_region(tmp_path: Path) -> None:
    content = tmx('<tu><tuv lang="DE-at"><seg>b</seg></tuv><tuv xml:lang="EN_US"><seg>a</seg></tuv></tu>')
    assert pairs_of_tmx(tmp_path, content) == [(b"a", b"b")]


def test_regions_count_where_they_alone_tell_the_sides_apart(tmp_path: Path) -> None:
    content = tmx(
        '<tu><tuv xml:lang="pt-PT"><seg>autocarro</seg></tuv><tuv xml:lang="pt-BR"><seg>ônibus</seg></tuv></tu>'
    )
    assert pairs_of_tmx(tmp_path, content, Languages("pt-br", "pt-pt")) == [("ônibus".encode(), b"autocarro")]


def test_the_first_variant_of_a_language_counts_and_units_without_both_are_skipped(tmp_path: Path) -> None:
    two = unit(en="1", de="3").replace("</tu>", '<tuv xml:lang="en"><seg>2</seg></tuv></tu>')
    assert pairs_of_tmx(tmp_path, tmx(unit(en="only"), two, unit(fr="x", de="y"))) == [(b"1", b"3")]


def test_codes_go_and_marked_text_stays(tmp_path: Path) -> None:
    source = (
        'Click <bpt i="1">&lt;b&gt;</bpt><hi type="x">here</hi><ept i="1">&lt;/b&gt;</ept>, <ph>{0}</ph>please<it/>.'
    )
    content = tmx(unit(en=source, de="Bitte <ph>a<sub>Fußnote<ph>x</ph></sub>b</ph>hier"))
    assert pairs_of_tmx(tmp_path, content) == [(b"Click here, please.", "Bitte  Fußnote hier".encode())]


def test_line_breaks_within_a_segment_become_a_space(tmp_path: Path) -> None:
    assert pairs_of_tmx(tmp_path, tmx(unit(en="\n  two\n    lines\n", de="a&#10;b<!-- no --> c"))) == [
        (b"two lines", b"a b c"),
    ]


def test_notes_and_properties_are_not_text(tmp_path: Path) -> None:
    content = tmx(
        '<tu tuid="1"><note>n</note><prop type="x">p</prop><tuv xml:lang="en"><prop type="y">q</prop><seg>a</seg></tuv>'
        '<tuv xml:lang="de"><seg>b</seg></tuv></tu>'
    )
    assert pairs_of_tmx(tmp_path, content) == [(b"a", b"b")]


def test_utf16_memories_are_read(tmp_path: Path) -> None:
    content = tmx(unit(en="a", de="ö"), before='<?xml version="1.0" encoding="UTF-16"?>').encode("utf-16")
    assert pairs_of_tmx(tmp_path, content) == [(b"a", "ö".encode())]


def test_wrong_languages_name_those_found(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match=r"wrong languages: .* both en and de, but the file holds fr-CA, it: "
    ) as caught:
        pairs_of_tmx(tmp_path, tmx(*[unit(**{"fr-CA": "a", "it": "b"})] * 3))
    assert caught.value.path == tmp_path / "memory.tmx"


def test_xml_without_units_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no translation units"):
        pairs_of_tmx(tmp_path, "<html/>")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (tmx(unit(en="a", de="b"), "<tu><tuv></tu>"), 3),
        (tmx(unit(en="a", de="b"), unit(en="a & b", de="c")), 3),
        (tmx(unit(en="a", de="b"))[:-9], 3),
        ("plain text", 1),
        (b"<tmx>\n\n\xff</tmx>", 3),
        ("", 1),
    ],
)
def test_broken_xml_is_named_by_line_after_the_pairs_before_it(content: str | bytes, line: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "memory.tmx", content)
    pairs = read_tmx(path, EN_DE)
    if "<tu>" in str(content):
        assert next(pairs) == (b"a", b"b")
    with pytest.raises(CorpusError, match="not well-formed") as caught:
        next(pairs)
    assert (caught.value.path, caught.value.line) == (path, line)


def test_nothing_outside_the_file_is_read(tmp_path: Path) -> None:
    secret = saved(tmp_path / "secret.txt", "secret")
    dtd = saved(tmp_path / "tmx14.dtd", '<!ENTITY word "from the dtd">')
    before = f'<!DOCTYPE tmx SYSTEM "{dtd.as_uri()}" [<!ENTITY file SYSTEM "{secret.as_uri()}">]>'
    for entity in ("file", "word"):
        try:
            got = pairs_of_tmx(tmp_path, tmx(unit(en=f"a &{entity};", de="b"), before=before))
        except CorpusError:
            continue
        assert got == [(b"a ", b"b")]


def test_entities_that_multiply_are_refused(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    before = f'<!DOCTYPE tmx [<!ENTITY e0 "0123456789">{levels}]>'
    with pytest.raises(CorpusError):
        pairs_of_tmx(tmp_path, tmx(unit(en="&e9;", de="b"), before=before))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "memory.tmx", tmx(*[unit(en="a sentence " * 5, de="ein Satz " * 5)] * 15_000))
    tracemalloc.start()
    count = sum(1 for _ in read_tmx(path, EN_DE))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 15_000
    assert peak < path.stat().st_size


def test_an_endless_segment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_memories, "MAX_LINE_BYTES", 1 << 10)
    with pytest.raises(CorpusError, match="a segment is longer"):
        pairs_of_tmx(tmp_path, tmx(unit(en="a" * 5000, de="b")))


# PO


def pairs_of_po(folder: Path, content: str | bytes) -> list[tuple[bytes, bytes]]:
    return list(read_po(saved(folder / "de.po", content), EN_DE))


def test_untranslated_fuzzy_and_obsolete_messages_are_skipped(tmp_path: Path) -> None:
    content = PO_HEAD + (
        '#. a comment\n#: file.c:1\nmsgctxt "menu"\nmsgid "&Open"\nmsgstr "Ö&ffnen"\n\n'
        'msgid "nothing"\nmsgstr ""\n\n#, fuzzy\nmsgid "fuzzy"\nmsgstr "unscharf"\n\n'
        '#~ msgid "old"\n#~ msgstr "alt"\n'
    )
    assert pairs_of_po(tmp_path, content) == [(b"&Open", "Ö&ffnen".encode())]


def test_plurals_give_the_first_and_the_last_form(tmp_path: Path) -> None:
    content = PO_HEAD + (
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "x"\nmsgstr[2] "%d Dateien"\n\n'
        'msgid "a"\nmsgid_plural "as"\nmsgstr[0] "b"\nmsgstr[1] ""\n'
    )
    assert pairs_of_po(tmp_path, content) == [(b"%d file", b"%d Datei"), (b"%d files", b"%d Dateien"), (b"a", b"b")]


def test_line_breaks_within_a_message_become_a_space(tmp_path: Path) -> None:
    content = PO_HEAD + 'msgid ""\n"one\\n"\n"two\\n"\nmsgstr "eins\\n\\nzwei\\n"\n'
    assert pairs_of_po(tmp_path, content) == [(b"one two", b"eins zwei")]


def test_po_in_another_charset_becomes_utf8_and_invalid_bytes_pass(tmp_path: Path) -> None:
    latin = PO_HEAD.replace("UTF-8", "ISO-8859-1") + 'msgid "a"\nmsgstr "schön"\n'
    assert pairs_of_po(tmp_path, latin.encode("latin-1")) == [(b"a", "schön".encode())]
    broken = PO_HEAD.encode() + b'msgid "a"\nmsgstr "\xe4\x85"\n'
    assert pairs_of_po(tmp_path, broken) == [(b"a", b"\xe4\x85")]


def test_a_po_that_belies_its_charset_is_an_error(tmp_path: Path) -> None:
    content = PO_HEAD.replace("UTF-8", "EUC-JP").encode() + b'msgid "a"\nmsgstr "\xff\xff"\n'
    with pytest.raises(CorpusError, match="not in euc-jp"):
        pairs_of_po(tmp_path, content)


def test_a_po_of_another_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="wrong language: it translates into fr, not de"):
        pairs_of_po(tmp_path, PO_HEAD.replace("Language: de", "Language: fr") + 'msgid "a"\nmsgstr "b"\n')
    regional = PO_HEAD.replace("Language: de", "Language: de_AT") + 'msgid "a"\nmsgstr "b"\n'
    assert pairs_of_po(tmp_path, regional) == [(b"a", b"b")]
    unstated = PO_HEAD.replace("Language: de", "Language: ") + 'msgid "a"\nmsgstr "b"\n'
    assert pairs_of_po(tmp_path, unstated) == [(b"a", b"b")]


@pytest.mark.parametrize(
    ("content", "line"),
    [(PO_HEAD + 'msgid "a"\nthis is no PO\n', 7), ("just text\n", 1), ('msgid "a"\nmsgstr "b" c"\n', 2)],
)
def test_a_broken_po_is_named_by_line(content: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="msgfmt") as caught:
        pairs_of_po(tmp_path, content)
    assert (caught.value.path, caught.value.line) == (tmp_path / "de.po", line)


def test_a_po_that_is_a_path_is_not_followed(tmp_path: Path) -> None:
    other = saved(tmp_path / "other.po", PO_HEAD + 'msgid "a"\nmsgstr "secret"\n')
    with pytest.raises(CorpusError):
        pairs_of_po(tmp_path, str(other))


def test_a_po_with_no_translations_has_no_pairs(tmp_path: Path) -> None:
    path = saved(tmp_path / "de.po", PO_HEAD)
    with pytest.raises(CorpusError, match="no pairs of en and de"):
        list(read_pairs(Source("x", (path,), "po"), EN_DE))


# MO


def mo(messages: list[tuple[bytes, bytes]], order: str = "<") -> bytes:
    """Built by hand, so that both byte orders and broken tables can be made."""
    count = len(messages)
    tables, strings = [b"", b""], b""
    for side in (0, 1):
        for message in messages:
            tables[side] += struct.pack(f"{order}II", len(message[side]), 28 + 16 * count + len(strings))
            strings += message[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 28 + 16 * count)
    return head + tables[0] + tables[1] + strings


def pairs_of_mo(folder: Path, content: bytes) -> list[tuple[bytes, bytes]]:
    return list(read_mo(saved(folder / "de.mo", content), EN_DE))


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_contexts_and_plurals(order: str, tmp_path: Path) -> None:
    content = mo(
        [
            (b"", b"Language: de\nContent-Type: text/plain; charset=UTF-8\n"),
            (b"menu\x04Open", "Öffnen\n".encode()),
            (b"file\0files", b"Datei\0x\0Dateien"),
            (b"untranslated", b""),
            (b"invalid", b"\xff"),
        ],
        order,
    )
    assert pairs_of_mo(tmp_path, content) == [
        (b"Open", "Öffnen".encode()),
        (b"file", b"Datei"),
        (b"files", b"Dateien"),
        (b"invalid", b"\xff"),
    ]


def test_what_polib_compiles_is_read(tmp_path: Path) -> None:
    polib = pytest.importorskip("polib")
    catalogue = polib.POFile()
    catalogue.metadata = {"Language": "de", "Content-Type": "text/plain; charset=UTF-8"}
    catalogue.append(polib.POEntry(msgid="one\ntwo", msgstr="eins\nzwei"))
    catalogue.append(polib.POEntry(msgid="cat", msgid_plural="cats", msgstr_plural={0: "Katze", 1: "Katzen"}))
    assert sorted(pairs_of_mo(tmp_path, catalogue.to_binary())) == [
        (b"cat", b"Katze"),
        (b"cats", b"Katzen"),
        (b"one two", b"eins zwei"),
    ]


def test_mo_in_another_charset_becomes_utf8(tmp_path: Path) -> None:
    content = mo([(b"", b"Content-Type: text/plain; charset=ISO-8859-1\n"), (b"a", b"\xf6")])
    assert pairs_of_mo(tmp_path, content) == [(b"a", "ö".encode())]


def test_a_mo_of_another_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="wrong language: it translates into fr"):
        pairs_of_mo(tmp_path, mo([(b"", b"Language: fr\n"), (b"a", b"b")]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not a catalogue at all, but text", "does not begin like one"),
        (b"\xde\x12\x04\x95", "not a sound MO"),
        (struct.pack("<7I", 0x950412DE, 5 << 16, 0, 28, 28, 0, 28), "revision 5"),
        (struct.pack("<7I", 0x950412DE, 0, 0xFFFFFFFF, 28, 28, 0, 28), "table of 4294967295 messages passes its end"),
        (mo([(b"a", b"b" * 100)])[:-50], "a message passes its end"),
        (struct.pack("<7I", 0x950412DE, 0, 9, 28, 28, 0, 28) + struct.pack("<II", 90, 0) * 9, "overlap"),
    ],
)
def test_a_corrupt_mo_is_refused_before_it_costs_memory(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=words) as caught:
        pairs_of_mo(tmp_path, content)
    assert caught.value.path == tmp_path / "de.mo"

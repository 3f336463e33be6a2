"""Gettext message catalogs: PO and MO files."""

import struct
from pathlib import Path

import pytest

from dragoman.corpus.gettext_catalogs import InvalidPOError, load_po, read_mo, read_po
from dragoman.corpus.sources import Languages, Source, read_pairs
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")
PO_HEAD = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


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


def test_plurals_use_the_first_and_the_last_form(tmp_path: Path) -> None:
    content = PO_HEAD + (
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "x"\nmsgstr[2] "%d Dateien"\n\n'
        'msgid "a"\nmsgid_plural "as"\nmsgstr[0] "b"\nmsgstr[1] ""\n'
    )
    assert pairs_of_po(tmp_path, content) == [(b"%d file", b"%d Datei"), (b"%d files", b"%d Dateien"), (b"a", b"b")]


def test_line_breaks_within_a_message_become_a_space(tmp_path: Path) -> None:
    content = PO_HEAD + 'msgid ""\n"one\\n"\n"two\\n"\nmsgstr "eins\\n\\nzwei\\n"\n'
    assert pairs_of_po(tmp_path, content) == [(b"one two", b"eins zwei")]


def test_po_in_another_charset_is_converted_and_invalid_utf8_is_passed_through(tmp_path: Path) -> None:
    latin = PO_HEAD.replace("UTF-8", "ISO-8859-1") + 'msgid "a"\nmsgstr "schön"\n'
    assert pairs_of_po(tmp_path, latin.encode("latin-1")) == [(b"a", "schön".encode())]
    broken = PO_HEAD.encode() + b'msgid "a"\nmsgstr "\xe4\x85"\n'
    assert pairs_of_po(tmp_path, broken) == [(b"a", b"\xe4\x85")]


def test_a_po_with_a_wrong_charset_is_an_error(tmp_path: Path) -> None:
    content = PO_HEAD.replace("UTF-8", "EUC-JP").encode() + b'msgid "a"\nmsgstr "\xff\xff"\n'
    with pytest.raises(CorpusError, match="not in euc-jp"):
        pairs_of_po(tmp_path, content)


@pytest.mark.parametrize("charset", ["punycode", "idna", "nonsense", "zlib"])
def test_a_charset_that_no_text_has_is_an_error(tmp_path: Path, charset: str) -> None:
    with pytest.raises(CorpusError, match=f"not in {charset}"):
        pairs_of_po(tmp_path, PO_HEAD.replace("UTF-8", charset) + 'msgid "a"\nmsgstr "b"\n')


@pytest.mark.parametrize("line", ["# a comment", '"part of a message"'])
def test_a_message_or_comment_of_too_many_lines_is_an_error(tmp_path: Path, line: str) -> None:
    """polib takes quadratic time for it."""
    few, many = (f'msgid "a"\n\n{line}\n' + f"{line}\n" * count for count in (4000, 4200))
    with pytest.raises(InvalidPOError):
        load_po(many.encode(), "utf-8")
    load_po(few.encode(), "utf-8")


def test_a_header_after_other_messages_is_found(tmp_path: Path) -> None:
    assert pairs_of_po(tmp_path, 'msgid "a"\nmsgstr "b"\n\n' + PO_HEAD) == [(b"a", b"b")]


def test_a_po_in_another_language_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="wrong language: the file translates into fr, not de"):
        pairs_of_po(tmp_path, PO_HEAD.replace("Language: de", "Language: fr") + 'msgid "a"\nmsgstr "b"\n')
    regional = PO_HEAD.replace("Language: de", "Language: de_AT") + 'msgid "a"\nmsgstr "b"\n'
    assert pairs_of_po(tmp_path, regional) == [(b"a", b"b")]
    unstated = PO_HEAD.replace("Language: de", "Language: ") + 'msgid "a"\nmsgstr "b"\n'
    assert pairs_of_po(tmp_path, unstated) == [(b"a", b"b")]


@pytest.mark.parametrize(
    ("content", "line"),
    [(PO_HEAD + 'msgid "a"\nnot a PO line\n', 7), ("just text\n", 1), ('msgid "a"\nmsgstr "b" c"\n', 2)],
)
def test_a_broken_po_is_reported_with_its_line(content: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="msgfmt") as caught:
        pairs_of_po(tmp_path, content)
    assert (caught.value.path, caught.value.line) == (tmp_path / "de.po", line)


def test_a_po_whose_content_is_a_path_does_not_open_that_path(tmp_path: Path) -> None:
    other = saved(tmp_path / "other.po", PO_HEAD + 'msgid "a"\nmsgstr "secret"\n')
    with pytest.raises(CorpusError):
        pairs_of_po(tmp_path, str(other))


def test_a_po_without_translations_is_an_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "de.po", PO_HEAD)
    with pytest.raises(CorpusError, match="contains no pairs of en and de"):
        list(read_pairs(Source("x", (path,), "po"), EN_DE))


# MO


def mo(messages: list[tuple[bytes, bytes]], order: str = "<") -> bytes:
    """Build an MO file, in either byte order."""
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
def test_both_byte_orders_contexts_and_plurals_are_read(order: str, tmp_path: Path) -> None:
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


def test_a_file_compiled_by_polib_is_read(tmp_path: Path) -> None:
    polib = pytest.importorskip("polib")
    catalog = polib.POFile()
    catalog.metadata = {"Language": "de", "Content-Type": "text/plain; charset=UTF-8"}
    catalog.append(polib.POEntry(msgid="one\ntwo", msgstr="eins\nzwei"))
    catalog.append(polib.POEntry(msgid="cat", msgid_plural="cats", msgstr_plural={0: "Katze", 1: "Katzen"}))
    assert sorted(pairs_of_mo(tmp_path, catalog.to_binary())) == [
        (b"cat", b"Katze"),
        (b"cats", b"Katzen"),
        (b"one two", b"eins zwei"),
    ]


def test_mo_in_another_charset_is_converted(tmp_path: Path) -> None:
    content = mo([(b"", b"Content-Type: text/plain; charset=ISO-8859-1\n"), (b"a", b"\xf6")])
    assert pairs_of_mo(tmp_path, content) == [(b"a", "ö".encode())]


def test_a_mo_in_another_language_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="wrong language: the file translates into fr"):
        pairs_of_mo(tmp_path, mo([(b"", b"Language: fr\n"), (b"a", b"b")]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a catalog at all, but text", "the magic number is wrong"),
        (b"\xde\x12\x04\x95", "not a valid MO"),
        (struct.pack("<7I", 0x950412DE, 5 << 16, 0, 28, 28, 0, 28), "revision 5"),
        (
            struct.pack("<7I", 0x950412DE, 0, 0xFFFFFFFF, 28, 28, 0, 28),
            "table of 4294967295 messages extends beyond the end",
        ),
        (mo([(b"a", b"b" * 100)])[:-50], "a message extends beyond the end"),
        (struct.pack("<7I", 0x950412DE, 0, 9, 28, 28, 0, 28) + struct.pack("<II", 90, 0) * 9, "overlap"),
    ],
)
def test_a_corrupt_mo_is_rejected_before_it_costs_memory(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        pairs_of_mo(tmp_path, content)
    assert caught.value.path == tmp_path / "de.mo"

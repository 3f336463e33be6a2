"""Reading pairs: every format, plain and compressed, valid and broken."""

import bz2
import csv
import gzip
import html
import io
import json
import lzma
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.corpus import line_formats
from dragoman.corpus.compression import BLOCK_BYTES
from dragoman.corpus.sources import FORMATS, Languages, Source, read_pairs
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")
TWO_FILES = {"lines", "sgm", "tags"}
Pairs = list[tuple[bytes, bytes]]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": lambda data: bz2.compress(data, 1),
    "zstd": zstandard.ZstdCompressor().compress,
}
SHARED_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def mo_file(messages: list[tuple[bytes, bytes]], order: str = "<") -> bytes:
    count = len(messages)
    tables, strings = [b"", b""], b""
    for side in (0, 1):
        for message in messages:
            begin = 28 + 16 * count + len(strings)
            tables[side] += struct.pack(f"{order}II", len(message[side]), begin)
            strings += message[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 28 + 16 * count)
    return head + tables[0] + tables[1] + strings


def write(format: str, pairs: list[tuple[str, str]]) -> list[bytes]:
    """The content of the file, or of the two files, with these pairs."""
    left, right = [source for source, _ in pairs], [target for _, target in pairs]
    match format:
        case "lines":
            return [lines(left), lines(right)]
        case "tags":
            return [b"<url>http://a.b</url>\n" + lines(left), b"<url>http://a.b</url>\n" + lines(right)]
        case "tsv":
            return [lines([f"{source}\t{target}" for source, target in pairs])]
        case "jsonl":
            return [lines([json.dumps({"en": source, "de": target}) for source, target in pairs])]
        case "sgm":
            return [
                lines([f'<seg id="{i}">{html.escape(text)}</seg>' for i, text in enumerate(side)])
                for side in (left, right)
            ]
        case "tmx":
            units = "".join(
                f'<tu><tuv xml:lang="EN-us"><seg>{html.escape(source)}</seg></tuv>\n'
                f'<tuv lang="de"><seg>{html.escape(target)}</seg></tuv></tu>\n'
                for source, target in pairs
            )
            return [f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>'.encode()]
        case "csv":
            table = io.StringIO()
            csv.writer(table, delimiter=";").writerows([("number", "en", "de"), *((1, *pair) for pair in pairs)])
            return [table.getvalue().encode()]
        case "xliff":
            units = "".join(
                f'<trans-unit id="{number}"><source>{html.escape(source)}</source>\n'
                f"<target>{html.escape(target)}</target></trans-unit>"
                for number, (source, target) in enumerate(pairs)
            )
            file = f'<file source-language="en" target-language="de-AT"><body>{units}</body></file>'
            return [f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{file}</xliff>'.encode()]
        case "po":
            head = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
            return [
                (
                    head + "\n".join(f"msgid {quoted(source)}\nmsgstr {quoted(target)}\n" for source, target in pairs)
                ).encode()
            ]
        case "mo":
            return [mo_file([(b"", b"Language: de\n"), *[(s.encode(), t.encode()) for s, t in pairs]])]
    raise AssertionError(format)


def save(folder: Path, format: str, contents: list[bytes]) -> Source:
    paths = [folder / f"text.{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return Source("text", tuple(paths), format)


def read(source: Source, languages: Languages = EN_DE) -> Pairs:
    return list(read_pairs(source, languages))


def encoded(pairs: list[tuple[str, str]]) -> Pairs:
    return [(source.encode(), target.encode()) for source, target in pairs]


def failure(source: Source, languages: Languages = EN_DE) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        read(source, languages)
    return caught.value


# Every format, plain and compressed


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("format", FORMATS)
def test_reads_every_format_in_every_compression(format: str, compressor: str, tmp_path: Path) -> None:
    pairs = [
        ("Good morning", "Guten Morgen"),
        ("R&D <b> \"x\" 'y' \\", "Öl\u2028mit\u0085Separator"),
        ("日本", "🌍 \u00a0"),
    ]
    contents = [COMPRESSORS[compressor](content) for content in write(format, pairs)]
    expected = [(s, t.strip(" ")) for s, t in pairs]
    assert read(save(tmp_path, format, contents)) == encoded(expected)


@pytest.mark.parametrize("format", FORMATS)
def test_files_longer_than_a_block_are_read_completely(format: str, tmp_path: Path) -> None:
    count = 600 if format == "po" else 9_000  # polib is slow.
    pairs = [(f"sentence {'x' * (number % 50)} {number}", f"Satz {number}") for number in range(count)]
    contents = write(format, pairs)
    assert format == "po" or len(contents[0]) > BLOCK_BYTES
    assert read(save(tmp_path, format, contents)) == encoded(pairs)


LETTERS = st.characters(codec="utf-8", exclude_characters="\n\r\t\ufeff")
XML_LETTERS = st.characters(
    codec="utf-8", exclude_characters="\n\r\t\ufeff\ufffe\uffff", exclude_categories=["Cc", "Cs"]
)
TEXTS = {
    "tmx": st.text(XML_LETTERS),
    "xliff": st.text(XML_LETTERS),
    "sgm": st.text(XML_LETTERS).map(lambda text: text.strip(" ")),
    "po": st.text(LETTERS, min_size=1),
    "mo": st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\x04"), min_size=1),
    "tags": st.text(LETTERS).map(lambda text: text.lstrip("<")),
}


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_text_without_newlines_is_read_unchanged(format: str, data: st.DataObject) -> None:
    text = TEXTS.get(format, st.text(LETTERS))
    pairs = data.draw(st.lists(st.tuples(text, text), min_size=1, max_size=6))
    compressor = data.draw(st.sampled_from(sorted(COMPRESSORS)))
    with tempfile.TemporaryDirectory() as folder:
        contents = [COMPRESSORS[compressor](content) for content in write(format, pairs)]
        assert read(save(Path(folder), format, contents)) == encoded(pairs)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_invalid_input_gives_pairs_or_a_corpus_error(format: str, data: st.DataObject) -> None:
    valid = write(format, [("Good <morning> & day", "Guten Morgen"), ("two\u2028lines", "zwei Zeilen"), ("3", "drei")])
    compressor = data.draw(st.sampled_from(sorted(COMPRESSORS)))
    broken = []
    for content in valid:
        kind = data.draw(
            st.sampled_from(["noise", "truncated", "patched", "compressed noise", "truncated after compression"])
        )
        if kind == "noise":
            broken.append(data.draw(st.binary(max_size=60)))
        elif kind == "compressed noise":
            broken.append(COMPRESSORS[compressor](data.draw(st.binary(max_size=60))))
        elif kind == "truncated":
            broken.append(COMPRESSORS[compressor](content[: data.draw(st.integers(0, len(content)))]))
        elif kind == "patched":
            at = data.draw(st.integers(0, len(content)))
            patch = data.draw(st.binary(min_size=1, max_size=8))
            broken.append(content[:at] + patch + content[at + len(patch) :])
        else:
            compressed = COMPRESSORS[compressor](content)
            broken.append(compressed[: data.draw(st.integers(0, len(compressed)))])
    with tempfile.TemporaryDirectory() as folder:
        source = save(Path(folder), format, broken)
        try:
            pairs = read(source)
        except CorpusError:
            return
    assert pairs
    assert not any(b"\n" in side for pair in pairs for side in pair)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_file_is_an_error(format: str, tmp_path: Path) -> None:
    source = save(tmp_path, format, [b""] * (2 if format in TWO_FILES else 1))
    assert str(source.paths[0]) in str(failure(source))


@pytest.mark.parametrize("compressor", [name for name in COMPRESSORS if name != "plain"])
def test_a_truncated_file_is_reported_with_its_last_complete_line(compressor: str, tmp_path: Path) -> None:
    texts = [f"{number * 7919 % 100_003} and {number * 104_729 % 1_000_003}" for number in range(60_000)]
    compressed = COMPRESSORS[compressor](lines(texts))
    source = save(tmp_path, "lines", [compressed[: len(compressed) * 2 // 3], lines(texts)])
    error = failure(source)
    assert error.path == source.paths[0]
    assert "truncated after this line" in str(error)
    got = list(islice(read_pairs(source, EN_DE), error.line))
    assert len(got) == error.line
    assert len(got) > 10_000
    assert got == encoded(list(zip(texts, texts, strict=True)))[: len(got)]


# Aligned lines


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    odd = b"a\x0bb\x0cc\x1cd\x1de\x1ef\xc2\x85g\xe2\x80\xa8h\xe2\x80\xa9i\rj"
    assert read(save(tmp_path, "lines", [odd + b"\nx\n", b"1\n2\n"])) == [(odd, b"1"), (b"x", b"2")]


def test_one_carriage_return_before_a_newline_is_removed(tmp_path: Path) -> None:
    source = save(tmp_path, "lines", [b"a\r\nb\r\r\n\r\nc\r", b"1\n2\r\n3\n4"])
    assert read(source) == [(b"a", b"1"), (b"b\r", b"2"), (b"", b"3"), (b"c", b"4")]


def test_a_byte_order_mark_is_removed_only_at_the_beginning(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    source = save(tmp_path, "lines", [bom + b"a\n" + bom + b"b\n", b"1\n2\n"])
    assert read(source) == [(b"a", b"1"), (bom + b"b", b"2")]


def test_empty_lines_are_kept_and_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    assert read(save(tmp_path, "lines", [b"\na\n\nb", b"1\n\n\n2\n"])) == [
        (b"", b"1"),
        (b"a", b""),
        (b"", b""),
        (b"b", b"2"),
    ]


def test_invalid_utf8_is_passed_through(tmp_path: Path) -> None:
    assert read(save(tmp_path, "lines", [b"\xff\x80a\n", b"\xc3\n"])) == [(b"\xff\x80a", b"\xc3")]


@pytest.mark.parametrize("short_side", [0, 1])
@pytest.mark.parametrize("format", ["lines", "tags"])
def test_unequal_numbers_of_lines_are_reported_with_both_files_and_the_line(
    format: str, short_side: int, tmp_path: Path
) -> None:
    contents = [b"a\nb\nc\nd\n"] * 2
    contents[short_side] = b"a\nb\n"
    source = save(tmp_path, format, contents)
    error = failure(source)
    assert (error.path, error.line) == (source.paths[short_side], 2)
    assert str(source.paths[1 - short_side]) in str(error)
    assert "create both again" in str(error)


@pytest.mark.parametrize("extra", [1, 30_000])
def test_unequal_lengths_in_a_later_block_are_reported_at_the_right_line(extra: int, tmp_path: Path) -> None:
    row = b"a line of some length, so that there are several blocks\n"
    source = save(tmp_path, "lines", [row * (30_000 + extra), row * 30_000])
    assert (failure(source).path, failure(source).line) == (source.paths[1], 30_000)


def test_an_empty_side_is_reported(tmp_path: Path) -> None:
    assert "is empty" in str(failure(save(tmp_path, "lines", [b"", b"a\n"])))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_rejected_with_a_remedy(encoding: str, tmp_path: Path) -> None:
    source = save(tmp_path, "lines", ["abc\nbcd\n".encode(encoding)] * 2)
    error = failure(source)
    assert f"--encoding {encoding}" in str(error)
    assert error.line == 1
    assert read(replace(source, encoding=encoding)) == [(b"abc", b"abc"), (b"bcd", b"bcd")]


def test_a_table_without_tabs_gets_a_remedy_that_helps(tmp_path: Path) -> None:
    source = save(tmp_path, "tsv", [b"Good morning;Guten Morgen\n"])
    assert "semicolons separate the columns, give --format csv" in str(failure(source))
    assert read(replace(source, format="csv")) == [(b"Good morning", b"Guten Morgen")]


def test_a_very_long_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_formats, "MAX_LINE_BYTES", 1 << 19)
    source = save(tmp_path, "lines", [b"ok\n" + b"a" * (1 << 20), b"1\n2\n"])
    assert failure(source).line == 2


def test_tagged_lines_are_skipped_on_both_sides(tmp_path: Path) -> None:
    left = b"<url>http://x</url>\n<title>T</title>\nHello\n<b> one side only\nBye\n"
    right = b"<url>http://x</url>\n<title>T</title>\nHallo\neine Seite\nTsch\xc3\xbcss\n"
    assert read(save(tmp_path, "tags", [left, right])) == [(b"Hello", b"Hallo"), (b"Bye", "Tschüss".encode())]


# TSV and JSONL


@pytest.mark.parametrize(("row", "columns"), [(b"one", 1), (b"", 1), (b"a\tb\tc", 3), (b"a\tb\t", 3)])
def test_a_tsv_line_must_have_two_columns(row: bytes, columns: int, tmp_path: Path) -> None:
    source = save(tmp_path, "tsv", [b"a\tb\r\n\t\n" + row + b"\n"])
    error = failure(source)
    assert (error.path, error.line) == (source.paths[0], 3)
    assert f"has {columns} column" in str(error)


@pytest.mark.parametrize(
    "record",
    [
        {"en": "a", "de": "b"},
        {"id": 1, "de-AT": "b", "EN_us": "a"},
        {"source": "a", "target": "b"},
        {"src": "a", "tgt": "b"},
        {"translation": {"en": "a", "de": "b", "fr": "c"}},
        {"translation": {"source": "a", "target": "b"}},
        {"en": "\na\r\n", "de": "b\n"},
    ],
)
def test_jsonl_accepts_language_codes_or_sides_as_keys(record: object, tmp_path: Path) -> None:
    source = save(tmp_path, "jsonl", [b"\n" + json.dumps(record).encode() + b"\n  \n"])
    assert read(source) == [(b"a", b"b")]


def test_jsonl_passes_invalid_bytes_and_lone_surrogates_through(tmp_path: Path) -> None:
    source = save(tmp_path, "jsonl", [b'{"en": "a\xff", "de": "\\ud800"}\n'])
    assert read(source) == [(b"a\xff", b"\xed\xa0\x80")]


def test_line_breaks_in_json_become_a_space(tmp_path: Path) -> None:
    source = save(tmp_path, "jsonl", [json.dumps({"en": "a \r\n\n  b", "de": "c\rd"}).encode()])
    assert read(source) == [(b"a b", b"c d")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"{broken", "is not JSON"),
        (b'["a", "b"]', "not a JSON object"),
        (b'{"en": "a"}', "its keys: en"),
        (b"{}", "its keys: none"),
        (b'{"en": "a", "de": 3}', '"de" is not a string'),
        (b'{"en": null, "de": "b"}', '"en" is not a string'),
        (b"[" * 100_000, "is not JSON"),
        (b'{"en": "a", "fr": "b"}', "its keys: en, fr"),
        (b"1" * 5000, "JSON"),
    ],
)
def test_an_invalid_json_line_is_reported_with_its_number(row: bytes, message: str, tmp_path: Path) -> None:
    source = save(tmp_path, "jsonl", [b'{"en": "a", "de": "b"}\n\n' + row + b"\n"])
    error = failure(source)
    assert (error.path, error.line) == (source.paths[0], 3)
    assert message in str(error)


# SGM


def test_a_character_reference_of_thousands_of_digits_is_no_character(tmp_path: Path) -> None:
    segment = b"<seg>&#" + b"9" * 5000 + b";</seg>"
    assert read(save(tmp_path, "sgm", [b"<seg>a</seg>", segment])) == [(b"a", "\ufffd".encode())]


def test_sgm_that_is_not_valid_xml_is_read(tmp_path: Path) -> None:
    left = (
        b'<srcset setid="x" srclang="any">\n<doc docid="1">\n<hl><SEG id="1"> AT&T &amp; &quot;R&D&quot; </SEG></hl>\n'
        b'<p>\n<seg id="2">two\n  lines</seg><seg id=3></seg>\n</p></doc>'
    )
    right = b'<refset>\n<seg id="1">eins</seg>\n<seg id="2">zwei</seg>\n<seg id="3">\xff</seg>'
    assert read(save(tmp_path, "sgm", [left, right])) == [
        (b'AT&T & "R&D"', b"eins"),
        (b"two lines", b"zwei"),
        (b"", b"\xff"),
    ]


@pytest.mark.parametrize("short_side", [0, 1])
def test_unequal_numbers_of_segments_are_reported_with_both_files(short_side: int, tmp_path: Path) -> None:
    contents = [b"<seg>a</seg><seg>b</seg>"] * 2
    contents[short_side] = b"<seg>a</seg>"
    source = save(tmp_path, "sgm", contents)
    error = failure(source)
    assert error.path == source.paths[short_side]
    assert f"ends after 1 segments, but {source.paths[1 - short_side]} has more" in str(error)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"<seg>a</seg>\n\n<seg>b", 3, "is not closed"),
        (b"<seg>a</seg>\n<seg>b\n<seg>c</seg>", 3, "inside another"),
        (b"<seg>a</seg>\nb</seg>", 2, "without <seg>"),
        (b"<seg>a</seg>\n" * 30_000 + b"<seg>x\n", 30_001, "is not closed"),
    ],
)
def test_unclosed_segments_are_reported_with_their_line(text: bytes, line: int, message: str, tmp_path: Path) -> None:
    source = save(tmp_path, "sgm", [text, b"<seg>1</seg>\n" * 30_001])
    error = failure(source)
    assert (error.path, error.line) == (source.paths[0], line)
    assert message in str(error)


def test_segments_may_span_blocks(tmp_path: Path) -> None:
    tag = b"<seg id='1'>text</seg>\n"
    for shift in range(0, len(tag) + 2):
        text = b" " * (BLOCK_BYTES - len(tag) + shift) + tag + tag
        assert read(save(tmp_path, "sgm", [text, tag * 2])) == [(b"text", b"text")] * 2


# Real corpora


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="the shared corpora are not available")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("multi30k-en-de/train", 29_000),
        ("multi30k-en-de/test2016", 1_000),
        ("newstest-en-de/newstest2014", 3_003),
        ("tatoeba-en-de/train", 160_078),
    ],
)
def test_real_corpora_have_the_expected_number_of_pairs(name: str, count: int) -> None:
    source = Source(name, (SHARED_DATA / f"{name}.en.xz", SHARED_DATA / f"{name}.de.xz"), "lines")
    pairs = read(source)
    assert len(pairs) == count
    assert all(left.decode() and right.decode() for left, right in pairs)
    assert any(one != other for one, other in pairwise(pairs))

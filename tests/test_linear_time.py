"""Every parser of users' text takes linear time, whatever the text: a search for texts that take longer.

One quadratic pattern is enough to freeze a server: `re` holds the GIL while it searches.
"""

import asyncio
import contextlib
import gc
import io
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.corpus import csv_format, gettext_catalogs, language_codes, language_detection, line_formats, tmx, xliff
from dragoman.corpus.cleaning import Cleaner
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding import protected_spans, text_input
from dragoman.decoding.alignment import AlignmentLink
from dragoman.decoding.glossary import Glossary, make_glossary
from dragoman.decoding.glossary_search import check_terms
from dragoman.decoding.line_translator import normalize_line, split_line, to_single_line
from dragoman.decoding.sentence_splitting import split_sentences
from dragoman.documents import formats
from dragoman.documents.html_document import HtmlDocument
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.tag_projection import project_tags
from dragoman.documents.text_units import find_units
from dragoman.errors import DragomanError
from dragoman.serving import request_parsing
from dragoman.serving.error_responses import ApiError
from dragoman.serving.schemas import TranslateRequest
from dragoman.settings import CleaningSettings

from .models import train_tokenizer
from .shared_folder import shared_folder

Parse = Callable[[str], object]
LANGUAGES = Languages("en", "de")
CHARACTERS = 12_000
GROWTH = 8
MAX_COST_RATIO = 24.0
"""Cost of a text against that of an eighth of it: about 8 in linear time, 64 in quadratic time."""
NEGLIGIBLE_S = 0.02
"""CPU time that is too short to compare. Even quadratic work that is as fast does no harm."""
TRIES = 6

CHARACTER_PIECES = (
    "aZéßж日あ🐪1٣ \t\n\r\x0b\x0c\x1c\x85\u2028\u00a0\u200b\u00ad\ufeff\ufffd\u0301\u0316\u05b0\x00"
    ".!?…,;:–—。！？、，\"'«»„“”‘’()[]{}<>「」』）¿¡-_+@/\\%$#&=|~^*`"
)
TEXT_PIECES = (
    "...", ". ", "! ", ", ", "?!", "Dr. ", "a.", ".a", "1,", "1.", "1 ", "a ", " a", "ab", "a\n", "\r\n", "\n\n",
    "日。", "http://", "https://a.b/", "www.", "ftp://", "a@", "a@b.c", "@b.", "{a", "{{", "}}", "${", "%(", "%(a)s",
    "%1$", "%d", "<a", "<a>", "</a>", "<a b='", "&#", "&#1", "&a", "&amp;", "&x;", "&#9999", "Ã", "â€", "\u0301\u0316",
)  # fmt: skip
PO_PIECES = (
    'msgid "', 'msgid ""\n', 'msgid "a"\nmsgstr ""\n', 'msgstr "', 'msgctxt "a"\n', '"a"\n', '""\n', "# a\n", "#\n",
    "#. a\n", "#: a:1\n", "#, fuzzy\n", '#| msgid "a"\n', '#~ msgid "a"\n', "\\n", '\\"', "\\\\", "a\\n", "a: b\\n",
    "\\f", "a-", "--", 'msgid_plural "a"\n', 'msgstr[0] ""\n', "charset=", "Plural-Forms: nplurals=", "nplurals ",
)  # fmt: skip
XML_PIECES = (
    "<tu>", "</tu>", "<tu/>", '<tuv xml:lang="en">', "<tuv/>", "</tuv>", "<seg>", "</seg>", "<seg", "<sub>", "<ph/>",
    "<bpt>", ' a="b"', ' xmlns:a="b"', "<!--", "-->", "<![CDATA[", "]]>", "<?a ", "?>", "<!DOCTYPE a [",
    '<!ENTITY a "b">', "<a:b/>", "<g>a</g>", "<g>", "</g>", "<bpt id='1'/>", "<ept id='1'/>", "<sc id='1'/>",
    "<ec startRef='1'/>",
    "<w:r><w:t>a</w:t></w:r>", "<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t></w:r>", "<w:r><w:tab/></w:r>", "<w:hyperlink>",
    "</w:hyperlink>", "<w:p/>", "<w:bookmarkStart/>", "<text:span>a</text:span>", "<text:span>", "</text:span>",
    "<text:tab/>", "<text:p>a</text:p>",
)  # fmt: skip
MARKUP_PIECES = (
    "[a](b)", "![a](b)", "[a]", "[a][]", "](", "**", "~~", "*a*", "**a", "``", "`a", "\n> ", "\n- ", "\n1. ", "\n# ",
    "  \n", "\\\n", "|a", "\n|", "\n|-|-|\n", "[a]: b\n", "\n```\n", "\n    ", "<!--", "<i>", "</i>", "{\\an8}", "-->",
    "\n\n00:00:01,000 --> 00:00:02,000\n", "\n- a",
)  # fmt: skip
REQUEST_PIECES = (
    '{"en": "', '{"a":', '"},', "\\u0061", "\\ud800", "1e9", "q=", "q=a&", "%41", "%F0", "en-", "en_US", ".en-de.",
)  # fmt: skip
PIECES = (*CHARACTER_PIECES, *TEXT_PIECES, *PO_PIECES, *XML_PIECES, *MARKUP_PIECES, *REQUEST_PIECES)


class Repetition:
    """A text of any length: units that are repeated together, or all of one before all of the next."""

    def __init__(self, prefix: str, units: tuple[str, ...], suffix: str = "") -> None:
        self.prefix, self.units, self.suffix = prefix, units, suffix

    def __call__(self, characters: int) -> str:
        count = characters // sum(map(len, self.units))
        return self.prefix + "".join(unit * count for unit in self.units) + self.suffix

    def __repr__(self) -> str:
        return f"Repetition({self.prefix!r}, {self.units!r}, {self.suffix!r})"


KNOWN = (
    Repetition("a", (".",)),
    Repetition("", (".",), "x"),
    Repetition("", (",",), "x"),
    Repetition("", ("{",)),
    Repetition("abc", ("\u0301", "\u0316")),
    Repetition('msgid ""\n', ('"a"\n',)),
    Repetition("", ("# a\n",), 'msgid "a"\nmsgstr ""\n'),
    Repetition('msgid ""\nmsgstr "a: b', ("\\f",), '"\n'),
    Repetition("", ('msgid "a"\nmsgstr ""\n',), 'msgid ""\nmsgstr "' + "a " * 2000 + '"\n'),
    Repetition("punycode\n", ("9",)),
    Repetition("<seg>&#", ("9",), ";</seg>"),
    Repetition("a", (" ",), "b"),
    Repetition("a `b", (" ",), "b`"),
    Repetition("a &#", ("1",), "; b"),
)
"""Texts that took quadratic time, or made a parser fail."""


@st.composite
def repetitions(draw: st.DrawFn) -> Repetition:
    piece = st.sampled_from(PIECES)
    prefix, suffix = draw(st.just("") | piece), draw(st.just("") | piece)
    units = draw(st.lists(piece, min_size=1, max_size=3))
    return Repetition(prefix, tuple(units) if draw(st.booleans()) else ("".join(units),), suffix)


def cpu_s(parse: Parse, text: str) -> float:
    gc.disable()  # It would look at the objects of all earlier tests, and more often during a long text.
    started_at_s = time.process_time()
    try:
        with contextlib.suppress(DragomanError, ApiError, ValidationError):
            parse(text)  # Refusals have their cost, too.
    finally:
        gc.enable()
    return time.process_time() - started_at_s


def assert_linear(parse: Parse, make_text: Repetition) -> None:
    """Compare the CPU times of a long and a short text. Another program can disturb some tries, but hardly all."""
    long, short = make_text(CHARACTERS), make_text(CHARACTERS // GROWTH)
    ratios: list[float] = []
    for _ in range(TRIES):
        cost_s = cpu_s(parse, long)
        if cost_s < NEGLIGIBLE_S:
            return
        ratios.append(cost_s / max(1e-5, min(cpu_s(parse, short) for _ in range(2))))
        if ratios[-1] < MAX_COST_RATIO:
            return
    raise AssertionError(f"{GROWTH} times the text takes {min(ratios):.0f} times as long, or more: {make_text!r}")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    def make(folder: Path) -> None:
        for algorithm in ("bpe", "unigram"):
            (folder / algorithm).mkdir()
            train_tokenizer(folder / algorithm, algorithm)

    folder = shared_folder(tmp_path_factory, "two-tokenizers", make)
    return [Tokenizer.load(folder / algorithm / "tokenizer.model") for algorithm in ("bpe", "unigram")]


def reader(folder: Path, read: Callable[..., Iterator[object]], template: str = "{}", *arguments: object) -> Parse:
    """Parses a file with the text in it."""
    path = folder / "text"

    def parse(text: str) -> None:
        path.write_bytes(template.replace("{}", text).encode("utf-8", "surrogatepass"))
        for _ in read(path, *arguments):
            pass

    return parse


def document(extension: str, template: str) -> Parse:
    def parse(text: str) -> None:
        content = template.replace("{}", text).encode("utf-8", "surrogatepass")
        parsed = formats.parse(content, extension, LANGUAGES)
        # Words in capitals: what is unchanged would not be written again.
        parsed.render([MarkedText(segment.text.swapcase(), segment.tags) for segment in parsed.segments])

    return parse


def package(extension: str, part: str, template: str) -> Parse:
    def parse(text: str) -> None:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("[Content_Types].xml", WORD_TYPES)
            archive.writestr(part, template.replace("{}", text).encode("utf-8", "surrogatepass"))
        parsed = formats.parse(content.getvalue(), extension, LANGUAGES)
        parsed.render([MarkedText(segment.text.swapcase(), segment.tags) for segment in parsed.segments])

    return parse


XLIFF = "<xliff version='1.2'><file><trans-unit><source>{}</source></trans-unit></file></xliff>"
XLIFF_2 = "<xliff version='2.0'><file><unit><segment><source>{}</source></segment></unit></file></xliff>"
WORD_TYPES = (
    '<Types><Override PartName="/word/document.xml" ContentType="'
    'application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
WORD = '<w:p xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:r><w:t>a</w:t></w:r>{}</w:p>'
OPEN_DOCUMENT = '<text:p xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">a{}</text:p>'
UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
DOCUMENTS = {
    "text": document("txt", "{}"),
    "PO file": document("po", "{}"),
    "PO message": document("po", 'msgid "{}"\nmsgstr ""\n'),
    "PO header": document("po", 'msgid ""\nmsgstr "a: {}"\n\nmsgid "a"\nmsgstr ""\n'),
    "PO comment": document("po", '# {}\n#. {}\n#: {}\n#, {}\nmsgid "a"\nmsgstr ""\n'),
    "TMX file": document("tmx", "{}"),
    "TMX body": document("tmx", f"<tmx><body>{{}}{UNIT}</body></tmx>"),
    "TMX segment": document("tmx", f"<tmx><body>{UNIT}</body></tmx>"),
    "Markdown": document("md", "{}"),
    "Markdown after a word": document("md", "a {}"),
    "Markdown table": document("md", "| a | b |\n|---|---|\n| {} | b |\n"),
    "SubRip": document("srt", "{}"),
    "SubRip cue": document("srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n"),
    "WebVTT cue": document("vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n"),
    "XLIFF source": document("xlf", XLIFF),
    "XLIFF 2 source": document("xlf", XLIFF_2),
    "Word paragraph": package("docx", "word/document.xml", WORD),
    "OpenDocument paragraph": package("odt", "content.xml", OPEN_DOCUMENT),
    "TMX attribute": document("tmx", f'<tmx a="{{}}"><body {{}}>{UNIT}</body></tmx>'),
}
SEGMENT = "<segment><source>{}</source><target>a{}</target></segment>"
READERS = {
    "TSV": (line_formats.read_tsv, "a\t{}\n"),
    "JSONL file": (line_formats.read_jsonl, "{}", LANGUAGES),
    "JSONL line": (line_formats.read_jsonl, '{"en": "{}", "de": "b"}', LANGUAGES),
    "SGM": (lambda path: line_formats.read_sgm(path, path), "{}"),
    "SGM segment": (lambda path: line_formats.read_sgm(path, path), "<seg>{}</seg>"),
    "tagged lines": (lambda path: line_formats.read_tags(path, path), "{}"),
    "TMX": (tmx.read_tmx, f"<tmx><body>{{}}{UNIT}</body></tmx>", LANGUAGES),
    "CSV file": (csv_format.read_csv, "{}", LANGUAGES, None),
    "CSV field": (csv_format.read_csv, 'en,de\na,"{}"\n', LANGUAGES, None),
    "XLIFF": (xliff.read_xliff, f"<xliff srcLang='en' trgLang='de'>{{}}{SEGMENT}</xliff>", LANGUAGES),
    "XLIFF segment": (xliff.read_xliff, f"<xliff srcLang='en' trgLang='de'>{SEGMENT}</xliff>", LANGUAGES),
    "PO": (gettext_catalogs.read_po, 'msgid "{}"\nmsgstr "{}"\n', LANGUAGES),
    "PO charset": (gettext_catalogs.read_po, 'msgid ""\nmsgstr "charset={}"\n"{}"', LANGUAGES),
    "MO": (gettext_catalogs.read_mo, "\u07de\x12\x04{}", LANGUAGES),
    "lines to translate": (lambda path: list(text_input.lines_of(str(path))), "{}"),
}


def work_on_protected_spans(text: str) -> None:
    protected_spans.has_translatable_text(text)
    protected_spans.changed_spans(text, text)
    protected_spans.changed_spans(text, "")
    protected_spans.split_at_spans(text, protected_spans.find_all(text))
    protected_spans.fit_to_source(text, "a")
    protected_spans.fit_to_source("a", text)


def work_on_language_codes(text: str) -> None:
    language_codes._primary.cache_clear()
    language_codes.same_language(text, "en")
    language_codes.find_language("en", [text, text + "a"], "de")
    language_codes.codes_that_differ(text, text + "a")
    language_codes.code_at_end(text)
    language_codes.direction_in(text)


def work_on_terms(text: str) -> None:
    pieces = dict.fromkeys((text[:200], text[:30], text[:9], *text[:2000].split()))
    with contextlib.suppress(DragomanError):
        check_terms(text, text, make_glossary(((piece, piece) for piece in pieces), "en", "terms"))
    check_terms(text, text, Glossary({"a": "a", "a b": "ab", "日": "日"}, "en"))


def clean(text: str) -> None:
    for form in ("NFC", "NFKC"):
        Cleaner(CleaningSettings(form=form), LANGUAGES).clean(text.encode("utf-8", "replace"), b"a" * len(text))


def parse_json(text: str) -> None:
    for body in (text, json.dumps({"q": text, "source": text, "target": "de"})):
        TranslateRequest.model_validate(request_parsing._parse_json(body.encode("utf-8", "surrogatepass")))


def parse_form(text: str) -> None:
    for body in (text, f"q={quote_plus(text, errors='replace')}&source=en&target=de"):
        request_parsing._parse_form(body.encode("utf-8", "surrogatepass"))


def parse_multipart(text: str) -> None:
    stated = b"multipart/form-data; boundary=b"
    head = b'--b\r\nContent-Disposition: form-data; name="q"'
    hostile = text.encode("utf-8", "surrogatepass")
    bodies = (hostile, head + b"\r\n\r\n" + hostile + b"\r\n--b--", head + hostile + b"\r\n\r\n\r\n--b--")
    for content_type, body in (*((stated, body) for body in bodies), (hostile, b""), (stated + b";a=" + hostile, b"")):
        with contextlib.suppress(ApiError):
            asyncio.run(request_parsing._parse_multipart(content_type, body))


def work_on_html(text: str) -> None:
    for page in (text, f"<p>a{text}</p>", f'<a href="{text}">b</a>'):
        document = HtmlDocument(page)
        links = (
            [AlignmentLink(start, end, start, end) for start, end in find_units(document.segments[0].text)]
            if document.segments
            else []
        )
        document.render([project_tags(segment, segment.text, links) for segment in document.segments])


TEXT_PARSERS: dict[str, Parse] = {
    "sentences": split_sentences,
    "protected spans": work_on_protected_spans,
    "HTML": work_on_html,
    "normalized lines": lambda text: to_single_line(normalize_line(text)),
    "language detection": language_detection.detect,
    "language codes": work_on_language_codes,
    "cleaning": clean,
    "glossary": work_on_terms,
    "JSON request": parse_json,
    "form request": parse_form,
    "multipart request": parse_multipart,
}
# Without shrinking: a text that takes quadratic time takes seconds.
SEARCH = settings(max_examples=60, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
SINGLE_PIECES = tuple(Repetition("", (piece,)) for piece in PIECES)


def search(parse: Parse) -> None:
    """Look for a text that takes longer than linear time."""
    for make_text in (*KNOWN, *SINGLE_PIECES):
        assert_linear(parse, make_text)
    SEARCH(given(repetitions())(lambda make_text: assert_linear(parse, make_text)))()


@pytest.mark.parametrize("name", TEXT_PARSERS)
def test_work_on_a_text_takes_linear_time(name: str) -> None:
    search(TEXT_PARSERS[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_translation_of_a_file_takes_linear_time(name: str) -> None:
    search(DOCUMENTS[name])


@pytest.mark.parametrize("name", READERS)
def test_reading_of_a_corpus_takes_linear_time(name: str, tmp_path: Path) -> None:
    read, template, *arguments = READERS[name]
    search(reader(tmp_path, read, template, *arguments))


def test_splitting_of_long_lines_takes_linear_time(tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        search(lambda text: split_line(normalize_line(text), lambda part: len(tokenizer.encode(part)), 250))  # noqa: B023


@pytest.mark.parametrize("pattern", [r"[.!?]+$", r"\w+@", r"<[^>]*>", r"\s+,", r"(?:\{|\()+\}"])
def test_the_search_finds_quadratic_patterns(pattern: str) -> None:
    def look() -> None:
        for make_text in (*KNOWN, *SINGLE_PIECES):
            assert_linear(re.compile(pattern).findall, make_text)

    with pytest.raises(AssertionError, match="times as long"):
        look()

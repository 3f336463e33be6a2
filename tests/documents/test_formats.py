"""Documents of all formats: a translation changes their text and nothing else, and damaged ones are refused."""

import codecs
import contextlib

import pytest
from benchmarks.document_fuzzing import damage
from benchmarks.document_structure import describe, untranslated_parts
from benchmarks.documents import in_reverse, to_capitals
from benchmarks.sample_documents import make_documents
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.formats import FORMATS, extension_of, parse

EN_DE = Languages("en", "de")
SAMPLES = make_documents()
PACKAGES = ("Word", "PowerPoint", "OpenDocument")
samples = pytest.mark.parametrize("name", SAMPLES)


def test_every_parser_has_a_sample():
    tried = {FORMATS[extension].media_type for extension, _ in SAMPLES.values()}
    assert {known.media_type for known in FORMATS.values()} - tried == {FORMATS["odp"].media_type}


@samples
def test_only_the_text_of_a_document_changes(name):
    extension, content = SAMPLES[name]
    document = parse(content, extension, EN_DE)
    translated = document.render([to_capitals(segment) for segment in document.segments])
    assert translated != content
    assert describe(name, translated, str.upper) == describe(name, content, str.upper)


@pytest.mark.parametrize("name", PACKAGES)
def test_parts_without_text_keep_their_bytes(name):
    extension, content = SAMPLES[name]
    document = parse(content, extension, EN_DE)
    translated = document.render([to_capitals(segment) for segment in document.segments])
    assert untranslated_parts(translated) == untranslated_parts(content)


@samples
def test_a_translation_that_equals_the_source_changes_nothing(name):
    extension, content = SAMPLES[name]
    document = parse(content, extension, EN_DE)
    assert describe(name, document.render(document.segments)) == describe(name, content)


@pytest.mark.parametrize("name", ["text", "Markdown", "HTML", "SubRip", "WebVTT"])
def test_a_text_file_stays_the_same_byte_for_byte_if_its_translation_is_the_source(name):
    extension, content = SAMPLES[name]
    for line_end in (b"\n", b"\r\n"):
        original = content.replace(b"\r\n", b"\n").replace(b"\n", line_end)
        document = parse(original, extension, EN_DE)
        assert document.render(document.segments) == original


@samples
def test_every_tag_of_a_segment_has_a_key_of_its_own_and_lies_within_the_text(name):
    extension, content = SAMPLES[name]
    for segment in parse(content, extension, EN_DE).segments:
        keys = [tag.key for tag in segment.tags]
        assert len(set(keys)) == len(keys)
        assert all(0 <= tag.start <= tag.end <= len(segment.text) for tag in segment.tags)


@samples
@given(seed=st.integers(min_value=10**6))
@settings(max_examples=40)
def test_a_damaged_document_is_translated_or_refused_with_one_sentence(name, seed):
    extension, content = SAMPLES[name]
    reason = "Translated."
    try:
        document = parse(damage(content, seed), extension, EN_DE)
        document.render([in_reverse(segment) for segment in document.segments])
    except UnreadableError as error:
        reason = str(error)
    assert reason.endswith(".")
    assert "\n" not in reason
    assert len(reason) < 300


@pytest.mark.parametrize("extension", FORMATS)
@given(content=st.binary(max_size=200))
@settings(max_examples=30)
def test_any_bytes_are_translated_or_refused(extension, content):
    with contextlib.suppress(UnreadableError):
        document = parse(content, extension, EN_DE)
        document.render(document.segments)


@pytest.mark.parametrize("extension", ["xlf", "tmx"])
def test_elements_nested_without_end_are_refused(extension):
    name = {"xlf": "g", "tmx": "hi"}[extension]
    text = f"<{name}>" * 3000 + "text" + f"</{name}>" * 3000
    source = {
        "xlf": f"<xliff><file source-language='en'><trans-unit><source>{text}</source></trans-unit></file></xliff>",
        "tmx": f"<tmx><tu><tuv xml:lang='en'><seg>{text}</seg></tuv></tu></tmx>",
    }[extension]
    with pytest.raises(UnreadableError):
        parse(source.encode(), extension, EN_DE)


def test_an_unknown_extension_is_answered_with_the_known_ones():
    assert extension_of("A.Report.DOCX") == "docx"
    with pytest.raises(UnreadableError, match=r"'setup.exe' does not end in .txt, .html"):
        extension_of("setup.exe")


@pytest.mark.parametrize("extension", ["txt", "md", "srt", "vtt", "po"])
def test_text_is_read_in_utf_8_and_utf_16_and_written_in_the_same(extension):
    text = {
        "txt": "Größe\r\n", "md": "# Größe\n", "srt": "1\n00:00:01,000 --> 00:00:02,000\nGröße\n",
        "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nGröße\n", "po": 'msgid ""\nmsgstr ""\n\nmsgid "Größe"\nmsgstr ""\n',
    }[extension]  # fmt: skip
    for encoding, mark in (("utf-8", b""), ("utf-8-sig", codecs.BOM_UTF8), ("utf-16", codecs.BOM_UTF16)):
        content = text.encode(encoding)
        document = parse(content, extension, EN_DE)
        assert [segment.text.strip() for segment in document.segments] == ["Größe"]
        rendered = document.render(document.segments)
        assert "Größe" in rendered.decode(encoding)
        assert rendered.startswith(mark)
    with pytest.raises(UnreadableError, match=r"not UTF-8 \(byte \d+\)"):
        parse(text.encode("latin-1"), extension, EN_DE)

"""The formats of documents, by the extensions of their files."""

from collections.abc import Callable
from dataclasses import dataclass

from dragoman.corpus.sources import Languages
from dragoman.documents.document import Document, UnreadableError, decode_text
from dragoman.documents.html_document import HtmlDocument
from dragoman.documents.markdown_document import parse_markdown
from dragoman.documents.message_catalog import parse_po
from dragoman.documents.open_document import parse_open_document
from dragoman.documents.plain_text import parse_text
from dragoman.documents.presentation import parse_pptx
from dragoman.documents.subtitles import parse_srt, parse_vtt
from dragoman.documents.translation_memory import parse_tmx
from dragoman.documents.word_document import parse_docx
from dragoman.documents.xliff_document import parse_xliff

_OFFICE = "application/vnd.openxmlformats-officedocument"
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument"


@dataclass(frozen=True)
class Format:
    """A format of documents."""

    media_type: str
    parse: Callable[[bytes, Languages], Document]
    is_package: bool = False
    """True for archives of text, images and more."""


def _in_any_language(parse: Callable[[bytes], Document]) -> Callable[[bytes, Languages], Document]:
    """A parser for files that do not state their languages."""
    return lambda content, _: parse(content)


def _parse_html(content: bytes) -> Document:
    decoded = decode_text(content)
    page = HtmlDocument(decoded.text)
    return Document(page.segments, lambda translations: decoded.encode(page.render(translations)))


_HTML = Format("text/html; charset=utf-8", _in_any_language(_parse_html))
_MARKDOWN = Format("text/markdown; charset=utf-8", _in_any_language(parse_markdown))
_XLIFF = Format("application/xliff+xml", parse_xliff)
FORMATS = {
    "txt": Format("text/plain; charset=utf-8", _in_any_language(parse_text)),
    "html": _HTML,
    "htm": _HTML,
    "md": _MARKDOWN,
    "markdown": _MARKDOWN,
    "docx": Format(f"{_OFFICE}.wordprocessingml.document", _in_any_language(parse_docx), is_package=True),
    "pptx": Format(f"{_OFFICE}.presentationml.presentation", _in_any_language(parse_pptx), is_package=True),
    "odt": Format(f"{_OPEN_DOCUMENT}.text", _in_any_language(parse_open_document), is_package=True),
    "odp": Format(f"{_OPEN_DOCUMENT}.presentation", _in_any_language(parse_open_document), is_package=True),
    "srt": Format("application/x-subrip", _in_any_language(parse_srt)),
    "vtt": Format("text/vtt; charset=utf-8", _in_any_language(parse_vtt)),
    "po": Format("text/x-gettext-translation", parse_po),
    "tmx": Format("application/x-tmx+xml", parse_tmx),
    "xlf": _XLIFF,
    "xliff": _XLIFF,
}
"""Formats by extension."""


def extension_of(name: str) -> str:
    """Extension of a file name, if its format is supported."""
    extension = name.rpartition(".")[2].lower()
    if extension in FORMATS:
        return extension
    supported = ", ".join(f".{known}" for known in FORMATS)
    raise UnreadableError(f"The file name '{name[-40:]}' does not end in {supported}: use one of these formats.")


def parse(content: bytes, extension: str, languages: Languages) -> Document:
    """Parse a document; the message of an UnreadableError says what is wrong with it."""
    try:
        return FORMATS[extension].parse(content, languages)
    except RecursionError:
        raise UnreadableError("The elements of the file are nested too deeply: simplify it.") from None

"""Fifty kinds of text that make careless parsers slow: long runs, unclosed brackets, odd Unicode, file formats."""

import io
import zipfile
from xml.sax.saxutils import escape

_RUNS = {
    "dots": ".", "commas": ",", "question marks": "?!", "ellipses": "…", "CJK stops": "。", "letters": "a",
    "capital letters": "A", "words": "a ", "spaces": " ", "tabs": "\t", "line breaks": "\n", "CR LF": "\r\n",
    "line separators": "\u2028", "vertical tabs": "\x0b", "digits": "1", "digits and commas": "1,", "percents": "%",
    "opening braces": "{", "braces": "{}", "nested braces": "{{", "opening tags": "<a", "tags": "<a>", "quotes": '"',
    "brackets": ")", "at signs": "a@", "e-mail addresses": "a@b.c ", "URL beginnings": "http://", "www": "www.",
    "format strings": "%(", "numbered formats": "%1$", "entities": "&a;", "unclosed entities": "&#1",
    "sentences": "A. ", "abbreviations": "e.g. ", "CJK sentences": "日。", "emoji": "🐪", "hyphens": "a-",
    "zero-width spaces": "\u200b", "soft hyphens": "\u00ad", "opening quotes": ". «",
}  # fmt: skip
_PAIRS = {
    "dots, then a letter": (".", "x"),
    "spaces, then a letter": (" ", "x"),
    "combining marks in the wrong order": ("\u0301", "\u0316"),
    "nested brackets": ("(", ")"),
    "dots, then spaces": (".", " "),
}


def make_texts(characters: int) -> dict[str, str]:
    """Texts of this length by the name of their kind."""
    runs = {name: (piece * characters)[: characters - 1] for name, piece in _RUNS.items()}
    halves = {
        name: first * (characters // 2 - 1) + second * (characters // 2) for name, (first, second) in _PAIRS.items()
    }
    return {name: f"a{text}" for name, text in {**runs, **halves}.items()}


def make_files(size_bytes: int) -> dict[str, tuple[str, bytes]]:
    """Names and contents of files of about this size by the name of their kind."""

    def po(piece: str, end: str = 'msgid "a"\nmsgstr ""\n') -> tuple[str, bytes]:
        return "a.po", (piece * ((size_bytes - len(end)) // len(piece)) + end).encode()

    def tmx(piece: str) -> tuple[str, bytes]:
        return "a.tmx", f"<tmx><body>{piece * (size_bytes // len(piece) - 100)}<tu/></body></tmx>".encode()

    unit = '<tu><tuv xml:lang="en"><seg>A dog</seg></tuv></tu>'
    return {
        "PO comments": po("# a\n"),
        "PO messages": po('msgid "a"\nmsgstr ""\n', 'msgid ""\nmsgstr "' + "a " * 2000 + '"\n'),
        "TMX units": tmx(unit),
        "empty TMX units": tmx("<tu/>"),
        "TMX namespaces": tmx('<tu xmlns:a="b"/>'),
        "Word runs": (
            "a.docx",
            _word_document("<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t></w:r><w:r><w:tab/></w:r>", size_bytes),
        ),
        "Word paragraphs": ("a.docx", _word_document("</w:p><w:p><w:r><w:t>1</w:t></w:r>", size_bytes)),
        "a ZIP bomb": ("a.docx", _word_document(" ", 1000 * size_bytes)),
    }


def _word_document(piece: str, unpacked_bytes: int) -> bytes:
    """A document whose text is a repeated piece."""
    content = io.BytesIO()
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml", f'<Types><Override PartName="/word/document.xml" ContentType="{kind}"/></Types>'
        )
        text = piece * (unpacked_bytes // len(piece))
        archive.writestr("word/document.xml", f'<w:body xmlns:w="{namespace}"><w:p>{text}</w:p></w:body>')
    return content.getvalue()


def as_files(text: str, size_bytes: int) -> dict[str, bytes]:
    """Files of each format with copies of a text in them, of at most this size."""
    message = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    unit = '<tmx><body><tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu></body></tmx>'
    templates = {
        "a.txt": ("{}", text),
        "a.po": ('msgid "{}"\nmsgstr ""\n', message),
        "a.tmx": (unit, escape(text)),
        "a.md": ("{}", text),
        "a.html": ("<p>{}</p>", text),
        "a.srt": ("1\n00:00:01,000 --> 00:00:02,000\n{}\n", text),
        "a.xlf": ("<xliff><file><trans-unit><source>{}</source></trans-unit></file></xliff>", escape(text)),
    }
    return {
        name: template.replace("{}", part * ((size_bytes - len(template)) // len(part.encode()))).encode()
        for name, (template, part) in templates.items()
    }

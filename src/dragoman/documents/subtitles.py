"""Subtitles: SubRip (SRT) and WebVTT."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.character_references import decode_references
from dragoman.documents.document import Document, UnreadableError, decode_text, has_words
from dragoman.documents.inline_tree import InlineBuilder, InlineText, write_inline
from dragoman.documents.line_wrapping import wrap_evenly
from dragoman.documents.marked_text import MarkedText
from dragoman.text_lines import split_lines

_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\n]*")
# Tags of WebVTT and SubRip, and override codes such as {\an8}.
_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[a-zA-Z]*+)[^<>\n]*+>|\{\\[^{}\n]*+\}")
# Short ones: `html` refuses to read numbers of thousands of digits.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_LEADING_TAGS = re.compile(rf"(?:[ \t]*+(?:{_TAG.pattern}))*+")
_DASH = re.compile(r"[ \t]*[-–—]++(?!>)[ \t]*")


@dataclass(frozen=True)
class _CueText:
    """Lines of a cue that are translated together."""

    first: int
    lines: int
    dash: str
    """The mark of a speaker before the text, with the spaces around it, if there is one."""
    is_dash_in_tags: bool
    inline: InlineText
    tags: dict[int, tuple[str, str]]
    """For each key the tag, and the one that closes it or nothing."""

    def render(self, translation: MarkedText, is_vtt: bool) -> list[str]:
        wrapped = MarkedText(wrap_evenly(translation.text, self.lines), translation.tags)
        written = write_inline(self.inline.nest(wrapped), self.tags, _escape_vtt if is_vtt else _escape_srt)
        start = _leading_tags_end(written) if self.is_dash_in_tags else 0
        lines = split_lines(written[:start] + self.dash + written[start:])
        return lines or [""]  # A model may write nothing; the cue stays.


def parse_srt(content: bytes) -> Document:
    return _parse(content, is_vtt=False)


def parse_vtt(content: bytes) -> Document:
    return _parse(content, is_vtt=True)


def _parse(content: bytes, *, is_vtt: bool) -> Document:
    """Translate the texts of cues. Numbers, times, settings, styles and notes are kept byte for byte."""
    decoded = decode_text(content)
    if is_vtt and not decoded.text.startswith("WEBVTT"):
        raise UnreadableError("The file is not WebVTT: its first line must be WEBVTT.")
    lines = [match.groups() for match in _LINE.finditer(decoded.text)]
    cues = list(_cue_lines([text for text, _ in lines]))
    if not cues and decoded.text.strip() and not is_vtt:
        raise UnreadableError("The file has no subtitles: check that it is SubRip.")
    texts = [text for first, end in cues for text in _read_cue([line for line, _ in lines[first:end]], first, is_vtt)]

    def render(translations: Sequence[MarkedText]) -> bytes:
        new_lines = ["".join(line) for line in lines]
        for text, translation in zip(texts, translations, strict=True):
            if translation == text.inline.marked:
                continue
            rendered = text.render(translation, is_vtt)
            ends = [lines[text.first][1]] * (len(rendered) - 1) + [lines[text.first + text.lines - 1][1]]
            new_lines[text.first] = "".join(line + end for line, end in zip(rendered, ends, strict=True))
            for place in range(text.first + 1, text.first + text.lines):
                new_lines[place] = ""
        return decoded.encode("".join(new_lines))

    return Document([text.inline.marked for text in texts], render)


def _cue_lines(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First line and end of the text of each cue: what stands between a timing and an empty line."""
    place = 0
    while place < len(lines):
        place += 1
        if "-->" not in lines[place - 1] or not _TIMING.fullmatch(lines[place - 1]):
            continue
        first = place
        while place < len(lines) and lines[place].strip() and not _TIMING.fullmatch(lines[place]):
            place += 1
        if place > first:
            yield first, place


def _read_cue(lines: Sequence[str], first: int, is_vtt: bool) -> Iterator[_CueText]:
    """The text of a cue, or one text for each speaker if lines begin with dashes."""
    starts = [place for place, line in enumerate(lines) if place == 0 or _DASH.match(line, _leading_tags_end(line))]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = "\n".join(lines[start:end])
        tags_end = _leading_tags_end(text)
        match = _DASH.match(text, tags_end)
        dash = match.group() if match else ""
        builder = _read_tags(text[:tags_end] + text[tags_end + len(dash) :], is_vtt)
        inline = builder.flatten()
        if has_words(inline.marked.text):
            yield _CueText(first + start, end - start, dash, tags_end > 0, inline, builder.tags)


def _leading_tags_end(line: str) -> int:
    tags = _LEADING_TAGS.match(line)
    assert tags is not None  # There may be none.
    return tags.end()


def _read_tags(text: str, is_vtt: bool) -> InlineBuilder:
    builder = InlineBuilder()
    position = 0
    for match in [*_TAG.finditer(text), None]:
        part = text[position : match.start() if match else None].replace("\n", " ")
        builder.add_text(decode_references(part) if is_vtt else part)
        if match is None:
            return builder
        position = match.end()
        if match["slash"]:
            builder.close(match["name"], match.group())
        elif match["name"]:
            builder.open(match["name"], match.group())
        else:
            builder.add_single(match.group())
    return builder


def _escape_srt(text: str) -> str:
    return text.replace("-->", "->")  # An arrow would be taken for a timing.


def _escape_vtt(text: str) -> str:
    return _escape_srt(text).replace("&", "&amp;").replace("<", "&lt;")

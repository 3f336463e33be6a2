"""Readers for line and segment formats: two aligned files, TSV, JSONL, tagged lines and SGM.

All of them stream: memory is bounded by a block and the longest line.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from dragoman.character_references import decode_references
from dragoman.corpus.compression import CompressedFileError
from dragoman.corpus.language_codes import find_language
from dragoman.corpus.sources import Languages
from dragoman.corpus.text_encodings import read_text_blocks, utf16_without_mark
from dragoman.errors import CorpusError
from dragoman.prefetch import Prefetcher
from dragoman.text_lines import split_lines

PairIterator = Iterator[tuple[bytes, bytes]]

MAX_LINE_BYTES = 1 << 24
"""A longer line means that the file is not text, and it would fill the memory."""
PREFETCHED_BLOCKS = 4

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_SEG_TAG = re.compile(rb"<(/?)seg\b[^<>]*>", re.IGNORECASE)
_SEG_TAG_BYTES = 1024


def encode_line(text: str) -> bytes:
    """The text as one line of UTF-8: outer line breaks are removed, inner ones and their indents become a space."""
    if "\n" in text or "\r" in text:
        parts = (part.strip(" \t") for part in split_lines(text.replace("\r", "\n")))
        text = " ".join(filter(None, parts))
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # A lone surrogate: cleaning drops it as invalid UTF-8.
        return text.encode("utf-8", "surrogatepass")


class LineReader:
    """The lines of a file, with a count of the lines read so far.

    The rule for the ends of lines is that of `split_lines`.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self._encoding = encoding
        self.lines_read = 0
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        # Chains lists in C: a generator that yields single lines is several times slower.
        return chain.from_iterable(self._line_lists())

    def _line_lists(self) -> Iterator[list[bytes]]:
        rest = b""
        # Decompression releases the GIL.
        blocks = Prefetcher(read_text_blocks(self.path, self._encoding), PREFETCHED_BLOCKS)
        try:
            for block in blocks:
                text = rest + block
                end = text.rfind(b"\n") + 1
                lines, rest = split_lines(text[:end]), text[end:]
                if len(rest) > MAX_LINE_BYTES:
                    raise CorpusError(
                        f"a line is longer than {MAX_LINE_BYTES >> 20} MiB: write one sentence per line",
                        self.path,
                        self.lines_read + len(lines) + 1,
                    )
                if lines:
                    yield self._take(lines)
        except CompressedFileError as error:
            raise error.after_line(self.lines_read) from None
        finally:
            blocks.close()
        if rest:
            yield self._take(split_lines(rest))
        self.ended = True

    def _take(self, lines: list[bytes]) -> list[bytes]:
        """Count lines, and remove the byte-order mark of the first."""
        if self.lines_read == 0:
            utf16 = "utf-16" if lines[0].startswith(_UTF16_BOMS) else utf16_without_mark(b"\n".join(lines))
            if utf16 and self._encoding is None:
                raise CorpusError(f"is UTF-16: convert it to UTF-8, or give prepare --encoding {utf16}", self.path, 1)
            lines[0] = lines[0].removeprefix(_BOM)
        self.lines_read += len(lines)
        return lines


def decoded_lines(path: Path) -> Iterator[str]:
    """The lines of a file, plain or compressed, as text. Invalid UTF-8 is replaced: no line may be lost."""
    return (line.decode(errors="replace") for line in LineReader(path))


def evaluation_lines(path: Path) -> Iterator[str]:
    """The lines of a file, pipe or standard input for scores, which wrong characters would change: all are UTF-8."""
    return (decode_line(line, path, number) for number, line in enumerate(LineReader(path), 1))


def decode_line(line: bytes, path: Path, number: int | None) -> str:
    """The text of a line; `number` is for the error, where it is known."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise CorpusError(
            "is not UTF-8: convert it to UTF-8, or give prepare --encoding NAME, such as latin-1", path, number
        ) from None


def read_lines(source: Path, target: Path, encoding: str | None = None) -> PairIterator:
    """Pairs line n of one file with line n of the other."""
    left, right = LineReader(source, encoding), LineReader(target, encoding)
    try:
        yield from zip(left, right, strict=True)
    except ValueError:
        shorter, longer = (left, right) if left.ended else (right, left)
        ends = "ends here" if shorter.lines_read else "is empty"
        raise CorpusError(
            f"{ends}, but {longer.path} has more lines: the files are not aligned, create both again from one corpus",
            shorter.path,
            shorter.lines_read or None,
        ) from None


def read_tags(source: Path, target: Path, encoding: str | None = None) -> PairIterator:
    """Aligned IWSLT training files; lines that begin with markup (url, title, speaker ...) are skipped."""
    for pair in read_lines(source, target, encoding):
        if not (pair[0].startswith(b"<") or pair[1].startswith(b"<")):
            yield pair


def read_tsv(path: Path, encoding: str | None = None) -> PairIterator:
    """One pair per line: source, tab, target."""
    for number, line in enumerate(LineReader(path, encoding), start=1):
        source, tab, target = line.partition(b"\t")
        if not tab or b"\t" in target:
            raise CorpusError(_wrong_columns(line), path, number)
        yield source, target


def _wrong_columns(line: bytes) -> str:
    columns = line.count(b"\t") + 1
    if columns > 2:
        return f"has {columns} columns, not 2: keep source and target, for example with `cut -f1,2`"
    for separator, name in ((b";", "semicolons"), (b",", "commas")):
        if separator in line:
            return f"has no tab: if {name} separate the columns, give --format csv"
    return "has 1 column, not 2: write source and target on each line, separated by one tab"


def read_jsonl(path: Path, languages: Languages, encoding: str | None = None) -> PairIterator:
    """One object per line, with the sides under their language codes, `source` and `target`, or `src` and `tgt`."""
    for number, line in enumerate(LineReader(path, encoding), start=1):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"is not JSON ({error}): write one complete object per line", path, number) from None
        try:
            source, target = _extract_sides(record, languages)
        except ValueError as error:
            raise CorpusError(str(error), path, number) from None
        yield encode_line(source), encode_line(target)


def _extract_sides(record: Any, languages: Languages) -> tuple[str, str]:
    if not isinstance(record, dict):
        raise ValueError(f"is not a JSON object: write {_example(languages)}")
    inner = record.get("translation")
    holder = inner if isinstance(inner, dict) else record
    codes = [find_language(code, holder, other) for code, other in _directions(languages)]
    for source_key, target_key in (codes, ("source", "target"), ("src", "tgt")):
        if source_key in holder and target_key in holder:
            for key in (source_key, target_key):
                if not isinstance(holder[key], str):
                    raise ValueError(f'"{key}" is not a string: write {_example(languages)}')
            return holder[source_key], holder[target_key]
    keys = ", ".join(list(holder)[:8]) or "none"
    raise ValueError(
        f"has no {languages.source} or {languages.target} (its keys: {keys}): write {_example(languages)}, "
        "or set --languages to the languages in the file"
    )


def _directions(languages: Languages) -> tuple[tuple[str, str], tuple[str, str]]:
    return (languages.source, languages.target), (languages.target, languages.source)


def _example(languages: Languages) -> str:
    return f'{{"{languages.source}": "...", "{languages.target}": "..."}}'


def read_sgm(source: Path, target: Path, encoding: str | None = None) -> PairIterator:
    """WMT and IWSLT test sets: pairs segment n of one file with segment n of the other."""
    sides = zip_longest(_segments(source, encoding), _segments(target, encoding))
    for number, (left, right) in enumerate(sides):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise CorpusError(
                f"ends after {number} segments, but {longer} has more: use both sides of the same test set", shorter
            )
        yield left, right


def _segment_line(segment: bytes) -> bytes:
    text = decode_references(segment.decode("utf-8", "surrogateescape"))
    return encode_line(text.strip(" \t\r\n"))


def _segments(path: Path, encoding: str | None) -> Iterator[bytes]:
    """The text of each <seg> element.

    These files look like XML but are not (bare ampersands, no root), so only <seg> tags are parsed.
    """
    text = b""
    lines_before = 0
    begin = scan = 0  # Start of the open segment's text; start of the search for tags.
    is_open = False
    for block in read_text_blocks(path, encoding):
        text += block
        for tag in _SEG_TAG.finditer(text, scan):
            closes = bool(tag[1])
            if closes != is_open:
                problem = "<seg> inside another segment" if is_open else "</seg> without <seg>"
                line = lines_before + text.count(b"\n", 0, tag.start()) + 1
                raise CorpusError(f"{problem}: close every <seg ...> with </seg>", path, line)
            if closes:
                yield _segment_line(text[begin : tag.start()])
            is_open = not closes
            begin = scan = tag.end()
        # A tag may be split by the end of the block.
        scan = max(scan, len(text) - _SEG_TAG_BYTES)
        keep_from = begin if is_open else scan
        if len(text) - keep_from > MAX_LINE_BYTES:
            break
        lines_before += text.count(b"\n", 0, keep_from)
        text = text[keep_from:]
        begin, scan = 0, scan - keep_from
    if is_open:
        line = lines_before + text.count(b"\n", 0, begin) + 1
        raise CorpusError(
            "the segment that begins here is not closed: the file is truncated, download it again", path, line
        )

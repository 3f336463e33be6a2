"""Readers of formats that are made of lines or segments: two aligned files, TSV, JSONL, tagged lines and SGM.

All of them stream: memory is bounded by a block and the longest line.
"""

import html
import json
import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from dragoman.corpus.compression import ArchiveError, read_blocks
from dragoman.corpus.language_codes import find_language
from dragoman.corpus.sources import Languages
from dragoman.errors import CorpusError
from dragoman.prefetch import Prefetcher

Pairs = Iterator[tuple[bytes, bytes]]

MAX_LINE_BYTES = 1 << 24
"""No sentence is this long: past it, the file is not text, and would fill the memory."""
BLOCKS_AHEAD = 4

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_SEG_TAG = re.compile(rb"<(/?)seg\b[^<>]*>", re.IGNORECASE)
_SEG_TAG_BYTES = 1024


def bytes_of(text: str) -> bytes:
    """The text as one line of UTF-8: breaks at its ends go, breaks within and their indents become a space."""
    if "\n" in text or "\r" in text:
        parts = (part.strip(" \t") for part in text.replace("\r", "\n").split("\n"))
        text = " ".join(filter(None, parts))
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, which cleaning will find
        return text.encode("utf-8", "surrogatepass")


class LineReader:
    """The lines of a file, and how many of them have been read.

    Only b"\\n" ends a line, and one b"\\r" before it goes too: what Unicode calls a line separator is text to us,
    since two files are aligned by newlines alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines_read = 0
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        # Lists chained in C: a generator that yielded line by line would be several times slower.
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[list[bytes]]:
        rest = b""
        blocks = Prefetcher(read_blocks(self.path), BLOCKS_AHEAD)  # Decompression takes no turns with Python code.
        try:
            for block in blocks:
                text = rest + block
                lines = text.split(b"\n")
                rest = lines.pop()
                if len(rest) > MAX_LINE_BYTES:
                    raise CorpusError(
                        f"a line is longer than {MAX_LINE_BYTES >> 20} MiB: write one sentence a line",
                        self.path,
                        self.lines_read + len(lines) + 1,
                    )
                if lines:
                    yield self._finish(lines, has_returns=b"\r" in text)
        except ArchiveError as error:
            raise error.after_line(self.lines_read) from None
        finally:
            blocks.close()
        if rest:
            yield self._finish([rest], has_returns=True)
        self.ended = True

    def _finish(self, lines: list[bytes], has_returns: bool) -> list[bytes]:
        if self.lines_read == 0:
            if lines[0].startswith(_UTF16_BOMS):
                raise CorpusError("is UTF-16: convert it with `iconv -f utf-16 -t utf-8`", self.path, 1)
            lines[0] = lines[0].removeprefix(_BOM)
        if has_returns:
            lines = [line.removesuffix(b"\r") for line in lines]
        self.lines_read += len(lines)
        return lines


def read_lines(source: Path, target: Path) -> Pairs:
    """Line n of one file with line n of the other."""
    left, right = LineReader(source), LineReader(target)
    try:
        yield from zip(left, right, strict=True)
    except ValueError:
        shorter, longer = (left, right) if left.ended else (right, left)
        ends = "ends here" if shorter.lines_read else "is empty"
        raise CorpusError(
            f"{ends}, but {longer.path} goes on: the files are not aligned, so make both again from the same corpus",
            shorter.path,
            shorter.lines_read or None,
        ) from None


def read_tags(source: Path, target: Path) -> Pairs:
    """IWSLT training files: lines of mark-up (url, talk, title, speaker ...) stand at the same place on both sides."""
    for pair in read_lines(source, target):
        if not (pair[0].startswith(b"<") or pair[1].startswith(b"<")):
            yield pair


def read_tsv(path: Path) -> Pairs:
    """Source, a tab, target."""
    for number, line in enumerate(LineReader(path), start=1):
        source, tab, target = line.partition(b"\t")
        if not tab or b"\t" in target:
            columns = line.count(b"\t") + 1
            raise CorpusError(
                f"has {columns} column{'s' * (columns != 1)} where source and target make 2: "
                "keep these two, with one tab between (`cut -f1,2` does it)",
                path,
                number,
            )
        yield source, target


def read_jsonl(path: Path, languages: Languages) -> Pairs:
    """An object a line, with the sides under the languages' codes or under `source` and `target`."""
    for number, line in enumerate(LineReader(path), start=1):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"is not JSON ({error}): write one whole object on each line", path, number) from None
        try:
            source, target = _sides(record, languages)
        except ValueError as error:
            raise CorpusError(str(error), path, number) from None
        yield bytes_of(source), bytes_of(target)


def _sides(record: Any, languages: Languages) -> tuple[str, str]:
    if not isinstance(record, dict):
        raise ValueError(f"is JSON but not an object: write {_example(languages)}")
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
        f"lacks {languages.source} or {languages.target} (its keys: {keys}): write {_example(languages)}, "
        "or name the languages that it holds"
    )


def _directions(languages: Languages) -> tuple[tuple[str, str], tuple[str, str]]:
    return (languages.source, languages.target), (languages.target, languages.source)


def _example(languages: Languages) -> str:
    return f'{{"{languages.source}": "...", "{languages.target}": "..."}}'


def read_sgm(source: Path, target: Path) -> Pairs:
    """WMT and IWSLT test sets: segment n of one file with segment n of the other."""
    for number, (left, right) in enumerate(zip_longest(_segments(source), _segments(target))):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise CorpusError(
                f"ends after {number} segments, but {longer} goes on: take both sides from the same test set", shorter
            )
        yield left, right


def _segments(path: Path) -> Iterator[bytes]:
    """What stands between <seg> and </seg>.

    Such files look like XML and are not (bare ampersands, no root), so only the tags of segments are looked for.
    """
    text = b""
    lines_dropped = 0
    begin = scan = 0  # where the open segment's text begins; from where tags are to be looked for
    is_open = False
    for block in read_blocks(path):
        text += block
        for tag in _SEG_TAG.finditer(text, scan):
            closes = bool(tag[1])
            if closes != is_open:
                problem = "a segment begins within another" if is_open else "</seg> without <seg>"
                line = lines_dropped + text.count(b"\n", 0, tag.start()) + 1
                raise CorpusError(f"{problem}: every <seg ...> needs its </seg>, so mend it there", path, line)
            if closes:
                segment = text[begin : tag.start()].decode("utf-8", "surrogateescape")
                yield bytes_of(html.unescape(segment).strip(" \t\r\n"))
            is_open = not closes
            begin = scan = tag.end()
        # A tag may be cut in two by the end of the block.
        scan = max(scan, len(text) - _SEG_TAG_BYTES)
        keep_from = begin if is_open else scan
        if len(text) - keep_from > MAX_LINE_BYTES:
            break
        lines_dropped += text.count(b"\n", 0, keep_from)
        text = text[keep_from:]
        begin, scan = 0, scan - keep_from
    if is_open:
        line = lines_dropped + text.count(b"\n", 0, begin) + 1
        raise CorpusError("a segment that begins here does not end: the file is cut off, so fetch it again", path, line)

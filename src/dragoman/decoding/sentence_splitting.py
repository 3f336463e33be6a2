"""Splitting text into sentences, and joining it again without changing the whitespace between them.

Rules, not a model: a sentence ends at its punctuation if the following text looks like a beginning, unless the dot
belongs to an abbreviation, an initial or an ordinal. A sentence never spans a line break, and is never longer than
`MAX_SENTENCE_CHARACTERS`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

MAX_SENTENCE_CHARACTERS = 4000
"""A longer text without a sentence end is cut: the work on one sentence must not delay other requests."""

# In any language: a dot after one of these does not end a sentence. When in doubt, the rules do not split: a sentence
# that is split in two translates worse, while two sentences translated as one hardly do.
_ABBREVIATION_LIST = """
    dr mr mrs ms prof st jr sr vs etc e.g i.e cf no nr vol fig al inc ltd co dept approx est gen col capt lt sgt rev hon
    bzw z.b d.h u.a usw ca evtl ggf inkl max min tel str abs art hr fr hrsg jh bd s p pp m mme mlle av bd env sra srta
    jan feb mar apr jun jul aug sep sept oct okt nov dec dez
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
# The lookbehinds let each pattern start only once within a run of its characters: long runs would take quadratic time.
_LINE_BREAKS = re.compile(r"(?<!\s)[^\S\n\r]*(?:\r\n|[\n\r\u2028\u2029\x0b\x0c\x85])\s*")
_OPENING = "\"'«„“‘([¿¡-"
_SENTENCE_ENDS = re.compile(
    rf"(?<![.!?…])(?P<mark>[.!?…]+)[\"'»”’)\]]*\s+(?=[{re.escape(_OPENING)}]*(?P<next>[^\W_]))|[。！？]+[」』）”]*\s*"
)
_LONGEST_ABBREVIATION = 12
_SPACES = re.compile(r"\s*")


@dataclass(frozen=True)
class Segment:
    """A sentence and the whitespace after it. The sentence is empty where a line starts with whitespace."""

    text: str
    glue: str


def split_sentences(text: str) -> list[Segment]:
    """Split text into sentences; `join_segments` restores it exactly."""
    segments = []
    start = 0
    for line_break in _LINE_BREAKS.finditer(text):
        segments += _split_line(text[start : line_break.start()], line_break.group())
        start = line_break.end()
    segments += _split_line(text[start:], "")
    return segments


def join_segments(segments: list[Segment]) -> str:
    return "".join(segment.text + segment.glue for segment in segments)


def _split_line(line: str, line_break: str) -> list[Segment]:
    """Sentences of one line; the line break becomes part of the last one's glue."""
    indent = line[: len(line) - len(line.lstrip())]
    body = line[len(indent) :]
    ends = [match.end() for match in _SENTENCE_ENDS.finditer(body) if _is_sentence_end(body, match)]
    segments = [Segment("", indent)] if indent else []
    bounds = [0, *(end for end in ends if end < len(body)), len(body)]
    for start, end in pairwise([0, *_cut_long_sentences(body, bounds)]):
        part = body[start:end]
        sentence = part.rstrip()
        segments.append(Segment(sentence, part[len(sentence) :]))
    if segments:
        segments[-1] = Segment(segments[-1].text, segments[-1].glue + line_break)
    return segments or [Segment("", line_break)]


def _cut_long_sentences(line: str, bounds: Iterable[int]) -> Iterator[int]:
    """The bounds after the first, and cuts between those that are too far apart: after spaces, else anywhere."""
    for start, end in pairwise(bounds):
        begin = start
        while end - begin > MAX_SENTENCE_CHARACTERS:
            longest = begin + MAX_SENTENCE_CHARACTERS
            cut = line.rfind(" ", begin, longest) + 1 or longest
            begin = _SPACES.match(line, cut).end()  # type: ignore[union-attr]
            if begin < end:
                yield begin
        yield end


def _is_sentence_end(line: str, match: re.Match[str]) -> bool:
    if match["mark"] is None:  # CJK full stops are unambiguous.
        return True
    if match["next"].islower():
        return False
    if match["mark"] != ".":
        return True
    before = line[max(0, match.start() - _LONGEST_ABBREVIATION) : match.start()]
    word = before.split()[-1].lstrip(_OPENING) if before.strip() else ""
    is_initial = len(word) == 1 and word.isalpha()
    is_ordinal = word.isdigit() and len(word) <= 2
    return not (is_initial or is_ordinal or word.lower() in _ABBREVIATIONS)

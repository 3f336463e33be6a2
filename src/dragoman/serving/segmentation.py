"""Text of any shape to sentences and back: what stands between them, line breaks and indents included, stays as it is.

Rules, not a model: a sentence ends at its mark if what follows looks like a beginning, unless the dot belongs to an
abbreviation, an initial or an ordinal. A sentence never crosses a line break.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

# Whatever language: a dot after one of these is not the end. Short on purpose: a sentence cut in two is translated
# worse, but two taken for one hardly.
_KNOWN = """
    dr mr mrs ms prof st jr sr vs etc e.g i.e cf no nr vol fig al inc ltd co dept approx est gen col capt lt sgt rev hon
    bzw z.b d.h u.a usw ca evtl ggf inkl max min tel str abs art hr fr hrsg jh bd s p pp m mme mlle av bd env sra srta
    jan feb mar apr jun jul aug sep sept oct okt nov dec dez
"""
_ABBREVIATIONS = frozenset(_KNOWN.split())
# Each pattern looks back, so that it begins once in a run of its characters: else a long run takes quadratic time.
_LINES = re.compile(r"(?<!\s)[^\S\n\r]*(?:\r\n|[\n\r\u2028\u2029\x0b\x0c\x85])\s*")
_OPENING = "\"'«„“‘([¿¡-"
_ENDS = re.compile(
    rf"(?<![.!?…])(?P<mark>[.!?…]+)[\"'»”’)\]]*\s+(?=[{re.escape(_OPENING)}]*(?P<next>[^\W_]))|[。！？]+[」』）”]*\s*"
)
_LONGEST_ABBREVIATION = 12


@dataclass(frozen=True)
class Segment:
    """A sentence and what stands between it and the next. A text's first may have no words, only what stands before."""

    text: str
    glue: str


def cut(text: str) -> list[Segment]:
    """Sentences with their glue: joined again, they are the text."""
    segments = []
    begin = 0
    for gap in _LINES.finditer(text):
        segments += _sentences(text[begin : gap.start()], gap.group())
        begin = gap.end()
    segments += _sentences(text[begin:], "")
    return segments


def join(segments: list[Segment]) -> str:
    return "".join(segment.text + segment.glue for segment in segments)


def _sentences(line: str, glue: str) -> list[Segment]:
    """The sentences of one line; `glue` follows the last."""
    indent = line[: len(line) - len(line.lstrip())]
    body = line[len(indent) :]
    ends = [match.end() for match in _ENDS.finditer(body) if _is_end(body, match)]
    segments = [Segment("", indent)] if indent else []
    for first, last in pairwise([0, *(end for end in ends if end < len(body)), len(body)]):
        part = body[first:last]
        stripped = part.rstrip()
        segments.append(Segment(stripped, part[len(stripped) :]))
    if segments:
        segments[-1] = Segment(segments[-1].text, segments[-1].glue + glue)
    return segments or [Segment("", glue)]


def _is_end(line: str, match: re.Match[str]) -> bool:
    if match["mark"] is None:  # a full stop of its own script is never anything else
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

"""Language codes: comparing them, and finding them in file names."""

import re
from collections.abc import Collection
from functools import lru_cache

# All two-letter codes (ISO 639-1), so that `part.v2` or `train.xx` is not taken for a language.
_ISO_639_1 = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
    ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne
    ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss
    st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
# There are thousands of three-letter codes: any is accepted except those with another meaning in file names.
_OTHER_SUFFIXES = """
    src tgt trg ref hyp txt tsv tab csv xml tmx sgm tok bpe spm raw dev all new old tmp bak zip tar one two
"""
_TWO_LETTER_CODES = frozenset(_ISO_639_1.split())
_NOT_LANGUAGES = frozenset(_OTHER_SUFFIXES.split())
_CODE = r"[A-Za-z]{2,3}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}))*"
_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{2,8})*")
_SIDE = re.compile(rf"(?:(?:src|ref|tgt|trg)[._-])?({_CODE})")
_CODE_AT_END = re.compile(rf"(?:^|[/._-])({_CODE})$")
_TWO_CODES = re.compile(r"(?:^|[/._-])(?=([a-z]{2,3})[-_]([a-z]{2,3})(?:[._]|$))")


def same_language(code: str, other: str) -> bool:
    """Compare two codes without case and region: `en-US` and `EN` are the same language."""
    return _primary(code) == _primary(other)


def find_language(code: str, available: Collection[str], opposite: str) -> str | None:
    """The available code that matches: an exact match if there is one, else the first that differs only in its region.

    If source and target differ only in their region, as `pt-BR` and `pt-PT` do, the region must match.
    """
    if code in available:
        return code
    exact = code.replace("_", "-").lower()
    nearest = None
    for candidate in available:
        if candidate.replace("_", "-").lower() == exact:
            return candidate
        if nearest is None and same_language(candidate, code):
            nearest = candidate
    return None if same_language(code, opposite) else nearest


def codes_that_differ(first: str, second: str) -> tuple[str, str] | None:
    """The two codes, if the names differ in nothing else: `en` and `de` for `news.en-de.en` and `news.en-de.de`.

    WMT names may also mark the side: `newstest2013-src.en` and `newstest2013-ref.de`.
    """
    # Split at dots first, so that `news.pt-BR` and `news.pt-PT` differ in whole codes.
    for separators in ("./", "./-_"):
        sides = [_SIDE.fullmatch(part) for part in _differing_parts(first, second, separators)]
        if sides[0] and sides[1]:
            codes = sides[0][1], sides[1][1]
            if codes[0] != codes[1] and is_code(codes[0]) and is_code(codes[1]):
                return codes[0].replace("_", "-"), codes[1].replace("_", "-")
    return None


def _differing_parts(first: str, second: str, separators: str) -> tuple[str, str]:
    """Two names without their common prefix and suffix, which end at separators."""
    shortest = min(len(first), len(second))
    prefix = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    while prefix and first[prefix - 1] not in separators:
        prefix -= 1
    first, second = first[prefix:], second[prefix:]
    shortest = min(len(first), len(second))
    suffix = next((i for i in range(shortest) if first[-1 - i] != second[-1 - i]), shortest)
    while suffix and first[-suffix] not in separators:
        suffix -= 1
    return first[: len(first) - suffix], second[: len(second) - suffix]


def code_at_end(name: str) -> str | None:
    """The code at the end of a name: `de` in `news.de`."""
    found = _CODE_AT_END.search(name)
    return found[1].replace("_", "-") if found and is_code(found[1]) else None


def direction_in(name: str) -> tuple[str, str] | None:
    """The last language pair in a name: `en` and `de` in `news.en-de.tsv`."""
    found = [pair for pair in _TWO_CODES.findall(name) if is_code(pair[0]) and is_code(pair[1]) and pair[0] != pair[1]]
    return found[-1] if found else None


def is_code(code: str) -> bool:
    """True if a part of a file name may be a language code."""
    primary = _primary(code)
    return primary in _TWO_LETTER_CODES if len(primary) == 2 else primary not in _NOT_LANGUAGES


def single_language(code: str) -> str | None:
    """The primary code of a language, with a region or script or without; None for codes of groups, as `ROMANCE` is."""
    primary = _primary(code)
    return primary if re.fullmatch(_CODE, code) and is_code(primary) else None


@lru_cache(maxsize=1024)
def _primary(code: str) -> str:
    tag = _TAG.fullmatch(code)
    return (tag[1] if tag else code).lower()

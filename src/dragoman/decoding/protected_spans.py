"""Protected spans: URLs, placeholders and numbers that a translation must contain unchanged.

Models sometimes drop or alter them. The functions here detect that, and split a sentence around its protected spans.
"""

import re
from collections import Counter
from collections.abc import Collection

_VERBATIM = re.compile(
    r"""
      (?:https?|ftp)://[^\s<>"'»”’)\]]*[^\s<>"'»”’)\].,;:!?]   # URLs, without the full stop after them
    | www\.[^\s<>"'»”’)\]]*[^\s<>"'»”’)\].,;:!?]
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+
    | \{\{[^{}\s]*\}\} | \$?\{[^{}\s]*\}                        # {name}, ${name}, {{name}}
    | %\([^()\s]*\)[a-zA-Z]                                     # %(name)s
    | %(?:\d+\$)?[-+\#]?\d*(?:\.\d+)?[sdifgxXc@](?![^\W\d_])    # %1$s, %d: no letter follows
    | </?[a-zA-Z][^<>]*> | &(?:\#\d+|\w+);
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f]\d+)*")
_ANY_SPAN = re.compile(f"(?:{_VERBATIM.pattern})|{_NUMBER.pattern}", re.VERBOSE)
_NON_DIGIT = re.compile(r"\D")
_FINAL_PUNCTUATION = ".!?。"


def find_verbatim(text: str) -> list[str]:
    """Spans that must appear unchanged: URLs, e-mail addresses, placeholders, tags."""
    return _VERBATIM.findall(text)


def find_numbers(text: str) -> list[str]:
    """The digits of each number, without separators: 1,000.5 in one language is 1.000,5 in another."""
    return [_NON_DIGIT.sub("", number) for number in _NUMBER.findall(_VERBATIM.sub(" ", text))]


def has_translatable_text(text: str) -> bool:
    """True if the text has letters outside its protected spans."""
    return any(map(str.isalpha, _VERBATIM.sub(" ", text)))


def changed_spans(source: str, translation: str) -> set[str]:
    """Numbers missing in the translation, and verbatim spans whose number of occurrences differs from the source."""
    missing_numbers = Counter(find_numbers(source)) - Counter(find_numbers(translation))
    before, after = Counter(find_verbatim(source)), Counter(find_verbatim(translation))
    return {*missing_numbers, *(before - after), *(after - before)}


def find_all(text: str) -> set[str]:
    """All protected spans: verbatim ones, and the digits of numbers."""
    return {*find_verbatim(text), *find_numbers(text)}


def split_at_spans(text: str, spans: Collection[str]) -> list[tuple[str, bool]]:
    """Split text at the given spans: its parts, and True for those that are protected."""
    parts = []
    start = 0
    for match in _ANY_SPAN.finditer(text):
        if match.group() not in spans and _NON_DIGIT.sub("", match.group()) not in spans:
            continue
        if match.start() > start:
            parts.append((text[start : match.start()], False))
        parts.append((match.group(), True))
        start = match.end()
    if start < len(text):
        parts.append((text[start:], False))
    return parts


def fit_to_source(translation: str, source_part: str) -> str:
    """Translation of part of a sentence, with the part's outer whitespace, and no final punctuation the part lacks."""
    body = source_part.strip()
    if not body.endswith(tuple(_FINAL_PUNCTUATION)):
        translation = translation.rstrip(_FINAL_PUNCTUATION)
    leading = source_part[: len(source_part) - len(source_part.lstrip())]
    return leading + translation + source_part[len(source_part.rstrip()) :]

"""What a translation must hold unchanged: addresses, placeholders, numbers. A model may lose them, and this notices."""

import re
from collections import Counter
from collections.abc import Iterator

_VERBATIM = re.compile(
    r"""
      (?:https?|ftp)://[^\s<>"'»”’)\]]*[^\s<>"'»”’)\].,;:!?]   # addresses, without the full stop after them
    | www\.[^\s<>"'»”’)\]]*[^\s<>"'»”’)\].,;:!?]
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+
    | \{\{[^{}\s]*\}\} | \$?\{[^{}\s]*\}                        # {name}, ${name}, {{name}}
    | %\([^()\s]*\)[a-zA-Z] | %(?:\d+\$)?[-+\#]?\d*(?:\.\d+)?[sdifgxXc@]\b   # %(name)s, %1$s, %d
    | </?[a-zA-Z][^<>]*> | &(?:\#\d+|\w+);
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f]\d+)*")
_NOT_A_DIGIT = re.compile(r"\D")
_END_MARK = re.compile(r"[.!?。]+$")


def verbatim(text: str) -> list[str]:
    """What must come out letter by letter."""
    return _VERBATIM.findall(text)


def numbers(text: str) -> list[str]:
    """The digits of each number: languages separate them differently, 1,000.5 and 1.000,5."""
    return [_NOT_A_DIGIT.sub("", number) for number in _NUMBER.findall(_VERBATIM.sub(" ", text))]


def are_kept(source: str, translation: str) -> bool:
    """Whether all of them are still there, and as often. Numbers may be joined by others: `a dozen` becomes `12`."""
    lost = Counter(numbers(source)) - Counter(numbers(translation))
    return not lost and Counter(verbatim(source)) == Counter(verbatim(translation))


def around(text: str) -> Iterator[tuple[str, bool]]:
    """The text cut at what must be kept: parts, and whether each is to be kept as it is."""
    begin = 0
    for match in re.finditer(f"(?:{_VERBATIM.pattern})|{_NUMBER.pattern}", text, re.VERBOSE):
        if match.start() > begin:
            yield text[begin : match.start()], False
        yield match.group(), True
        begin = match.end()
    if begin < len(text):
        yield text[begin:], False


def like(part: str, translation: str) -> str:
    """A translated part with the space around it and without an end mark that its source has not."""
    body = part.strip()
    if not _END_MARK.search(body):
        translation = _END_MARK.sub("", translation)
    lead = part[: len(part) - len(part.lstrip())]
    return lead + translation + part[len(part.rstrip()) :]

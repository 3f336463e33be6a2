"""What a translation must hold unchanged: addresses, placeholders, numbers. A model may lose them, and this notices."""

import re
from collections import Counter
from collections.abc import Collection, Iterator

_VERBATIM = re.compile(
    r"""
      (?:https?|ftp)://[^\s<>"'»”’)\]]*[^\s<>"'»”’)\].,;:!?]   # addresses, without the full stop after them
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
_ANY = re.compile(f"(?:{_VERBATIM.pattern})|{_NUMBER.pattern}", re.VERBOSE)
_NOT_A_DIGIT = re.compile(r"\D")
_END_MARK = re.compile(r"[.!?。]+$")


def verbatim(text: str) -> list[str]:
    """What must come out letter by letter."""
    return _VERBATIM.findall(text)


def numbers(text: str) -> list[str]:
    """The digits of each number: languages separate them differently, 1,000.5 and 1.000,5."""
    return [_NOT_A_DIGIT.sub("", number) for number in _NUMBER.findall(_VERBATIM.sub(" ", text))]


def has_words(text: str) -> bool:
    """Whether there is anything to translate beside them."""
    return any(map(str.isalpha, _VERBATIM.sub(" ", text)))


def lost(source: str, translation: str) -> set[str]:
    """What is no longer there as often as it was; an address or placeholder that is there too often counts, too."""
    fewer = Counter(numbers(source)) - Counter(numbers(translation))
    before, after = Counter(verbatim(source)), Counter(verbatim(translation))
    return {*fewer, *(before - after), *(after - before)}


def around(text: str, kept: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The text cut at what must be kept: parts, and whether each is to stay as it is."""
    begin = 0
    for match in _ANY.finditer(text):
        if match.group() not in kept and _NOT_A_DIGIT.sub("", match.group()) not in kept:
            continue
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

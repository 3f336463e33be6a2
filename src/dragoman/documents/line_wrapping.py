"""Breaking a text into a given number of lines of about the same length."""

import re

_SPACE = re.compile(r"\s")


def wrap_evenly(text: str, max_lines: int) -> str:
    """Replace spaces by line breaks: at most `max_lines` lines, the longest as short as possible.

    The length stays the same, so that positions in the text do not change.
    """
    text = _SPACE.sub(" ", text)
    if max_lines <= 1:
        return text
    shortest, longest = 1, len(text)
    while shortest < longest:
        width = (shortest + longest) // 2
        if len(_breaks(text, width)) < max_lines:
            longest = width
        else:
            shortest = width + 1
    parts = list(text)
    for place in _breaks(text, shortest):
        parts[place] = "\n"
    return "".join(parts)


def _breaks(text: str, width: int) -> list[int]:
    """Spaces at which lines of at most `width` characters end; a longer word is a line of its own."""
    breaks = []
    line_start = 0
    last_space = -1
    for place, character in enumerate(f"{text} "):
        if character != " ":
            continue
        if place - line_start > width and last_space > line_start:
            breaks.append(last_space)
            line_start = last_space + 1
        last_space = place
    return breaks

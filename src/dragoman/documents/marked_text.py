"""Text with inline markup: tags around words, which must stay around the right words of a translation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InlineTag:
    """A tag around a part of a text, or a single tag at one place."""

    start: int
    end: int
    """Positions in the text. Both are equal for a single tag, such as a line break, and for one around nothing."""
    key: int
    """Identifies the tag for the document that the text is from. Each key occurs once."""


@dataclass(frozen=True)
class MarkedText:
    """A text and its inline markup. Tags are nested or apart, never crossed; an outer one comes before an inner."""

    text: str
    tags: tuple[InlineTag, ...] = ()

"""Translation of texts with inline markup.

The model gets the text without tags, so that they do not change the translation. Only sentences with tags inside them
are aligned: others are linked as a whole.
"""

from collections.abc import Sequence
from itertools import accumulate

from dragoman.decoding.alignment import AlignedTranslation, AlignmentLink, translate_aligned
from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.sentence_splitting import Segment, split_sentences
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.tag_projection import project_tags


def translate_marked(translator: LineTranslator, texts: Sequence[MarkedText]) -> list[MarkedText]:
    """Translate texts, keeping their whitespace and their tags around the right words."""
    segments = [split_sentences(text.text) for text in texts]
    aligned = dict.fromkeys(
        segment.text
        for text, parts in zip(texts, segments, strict=True)
        for segment, has_tags in zip(parts, tags_inside(text, parts), strict=True)
        if has_tags
    )
    plain = dict.fromkeys(part.text for parts in segments for part in parts if part.text and part.text not in aligned)
    found = dict(zip(aligned, translate_aligned(translator, list(aligned)), strict=True))
    for sentence, translation in zip(plain, translator.translate(list(plain)), strict=True):
        found[sentence] = link_whole(sentence, translation)
    found[""] = AlignedTranslation("", ())
    return [
        join_sentences(text, parts, [found[part.text] for part in parts])
        for text, parts in zip(texts, segments, strict=True)
    ]


def tags_inside(text: MarkedText, segments: Sequence[Segment]) -> list[bool]:
    """For each sentence of a text, true if a tag begins or ends within it."""
    borders = sorted({border for tag in text.tags for border in (tag.start, tag.end)})
    inside = []
    position = index = 0
    for segment in segments:
        while index < len(borders) and borders[index] <= position:
            index += 1
        inside.append(index < len(borders) and borders[index] < position + len(segment.text))
        position += len(segment.text) + len(segment.glue)
    return inside


def link_whole(sentence: str, translation: str) -> AlignedTranslation:
    """A translation that is linked to its source as a whole."""
    return AlignedTranslation(translation, (AlignmentLink(0, len(sentence), 0, len(translation)),))


def link_characters(text: str) -> AlignedTranslation:
    """Text that stays as it is."""
    return AlignedTranslation(
        text, tuple(AlignmentLink(index, index + 1, index, index + 1) for index in range(len(text)))
    )


def join_sentences(
    source: MarkedText, segments: Sequence[Segment], translations: Sequence[AlignedTranslation]
) -> MarkedText:
    """The translated text with the tags of the source, of the translations of its sentences."""
    glue = [link_characters(segment.glue) for segment in segments]
    parts = [part for pair in zip(translations, glue, strict=True) for part in pair]
    joined = join_parts([part for segment in segments for part in (segment.text, segment.glue)], parts)
    return project_tags(source, joined.text, joined.links)


def join_parts(sources: Sequence[str], parts: Sequence[AlignedTranslation]) -> AlignedTranslation:
    """The translation of a text of the translations of its parts."""
    source_starts = accumulate(map(len, sources), initial=0)
    target_starts = accumulate((len(part.text) for part in parts), initial=0)
    links = (
        link.shifted(source_start, target_start)
        for part, source_start, target_start in zip(parts, source_starts, target_starts, strict=False)
        for link in part.links
    )
    return AlignedTranslation("".join(part.text for part in parts), tuple(links))

"""Translation of texts with inline markup.

The model gets the text without tags, so that they do not change the translation. Only sentences with tags inside them
are aligned: others are linked as a whole.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from dragoman.decoding.alignment import AlignmentLink, align
from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.sentence_splitting import Segment, split_sentences
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.protected_sentence import ModelRequest, ProtectedSentence, Request
from dragoman.documents.tag_projection import project_tags

SentenceLinks = Mapping[tuple[str, str], Sequence[AlignmentLink]]
"""Links of sentences and their translations."""


def translate_marked(translator: LineTranslator, texts: Sequence[MarkedText]) -> list[MarkedText]:
    """Translate texts, keeping their whitespace, their protected spans, and their tags around the right words."""
    segments = [split_sentences(text.text) for text in texts]
    sentences = list(dict.fromkeys(part.text for parts in segments for part in parts))
    found = dict(zip(sentences, _translate_sentences(translator, sentences), strict=True))
    pairs = {
        (sentence, found[sentence]): None
        for text, parts in zip(texts, segments, strict=True)
        for sentence in sentences_with_tags(text, parts)
    }
    links = dict(zip(pairs, align(translator, list(pairs)), strict=True))
    return [
        join_sentences(text, parts, [found[part.text] for part in parts], links)
        for text, parts in zip(texts, segments, strict=True)
    ]


def _translate_sentences(translator: LineTranslator, sentences: Sequence[str]) -> list[str]:
    """Translate sentences, keeping their protected spans: the model gets all requests of a step together."""
    protected = [ProtectedSentence(sentence) for sentence in sentences]
    while requests := list(dict.fromkeys(each.request for each in protected if each.request)):
        answers = _answer(translator, requests)
        for each in protected:
            if each.request:
                each.answer(answers[each.request])
    return [each.translation for each in protected]


def _answer(translator: LineTranslator, requests: Sequence[Request]) -> dict[Request, list[MarkedText]]:
    """Translations of each request, best first."""
    answers: dict[Request, list[MarkedText]] = {}
    for with_alternatives in (False, True):
        n_best = translator.options.beam if with_alternatives else 1
        asked = [
            each for each in requests if isinstance(each, ModelRequest) and each.with_alternatives == with_alternatives
        ]
        found = translator.find_translations([each.text for each in asked], n_best)
        for request, translation in zip(asked, found, strict=True):
            answers[request] = [MarkedText(candidate.text) for candidate in translation.candidates(n_best)]
    marked = [each for each in requests if isinstance(each, MarkedText)]
    if marked:
        answers |= {text: [new] for text, new in zip(marked, translate_marked(translator, marked), strict=True)}
    return answers


def sentences_with_tags(text: MarkedText, segments: Sequence[Segment]) -> list[str]:
    """The sentences of a text within which a tag begins or ends."""
    borders = sorted({border for tag in text.tags for border in (tag.start, tag.end)})
    found = []
    position = index = 0
    for segment in segments:
        while index < len(borders) and borders[index] <= position:
            index += 1
        if index < len(borders) and borders[index] < position + len(segment.text):
            found.append(segment.text)
        position += len(segment.text) + len(segment.glue)
    return found


def join_sentences(
    source: MarkedText, segments: Sequence[Segment], translations: Sequence[str], sentence_links: SentenceLinks
) -> MarkedText:
    """The translated text with the tags of the source, from the translations of its sentences. Those that have no links
    are linked as a whole."""
    source_starts = accumulate((len(segment.text) + len(segment.glue) for segment in segments), initial=0)
    links: list[AlignmentLink] = []
    text = ""
    for segment, translation, start in zip(segments, translations, source_starts, strict=False):
        whole = [AlignmentLink(0, len(segment.text), 0, len(translation))]
        found = sentence_links.get((segment.text, translation), whole)
        links += (link.shifted(start, len(text)) for link in found)
        start_of_glue, text = start + len(segment.text), text + translation
        # Whitespace stays as it is, character by character.
        links += (
            AlignmentLink(start_of_glue + n, start_of_glue + n + 1, len(text) + n, len(text) + n + 1)
            for n in range(len(segment.glue))
        )
        text += segment.glue
    return project_tags(source, text, links)

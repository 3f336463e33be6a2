"""Translation of a sentence that keeps its protected spans: the same rule for files and for the server.

The rule asks for translations, and its caller gets them from the model: files ask for many sentences at a time, the
server for one sentence of each request.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.decoding.protected_spans import (
    changed_spans,
    find_all,
    fit_to_source,
    has_translatable_text,
    split_at_spans,
)
from dragoman.documents.html_document import HtmlDocument
from dragoman.documents.marked_text import MarkedText


@dataclass(frozen=True)
class ModelRequest:
    """Text that the model translates as it is."""

    text: str
    with_alternatives: bool = False


Request: TypeAlias = ModelRequest | MarkedText
"""What has to be translated; texts with inline markup by this rule again."""
_Steps: TypeAlias = Generator[Request, Sequence[MarkedText], str]


class ProtectedSentence:
    """A sentence whose translation has to keep its protected spans."""

    def __init__(self, sentence: str) -> None:
        self.translation = ""
        """Complete if there is no request."""
        self.request: Request | None = None
        self._steps = _translate(sentence)
        self._advance(None)

    def answer(self, translations: Sequence[MarkedText]) -> None:
        """Answer the request: at least one translation, best first."""
        self._advance(translations)

    def _advance(self, translations: Sequence[MarkedText] | None) -> None:
        try:
            self.request = next(self._steps) if translations is None else self._steps.send(translations)
        except StopIteration as end:
            self.request, self.translation = None, end.value


def _translate(sentence: str) -> _Steps:
    """The best translation that keeps all protected spans; if there is none, translate around the spans."""
    if not has_translatable_text(sentence):
        return sentence
    best, *_ = yield ModelRequest(sentence)
    changed = changed_spans(sentence, best.text)
    if not changed:
        return best.text
    for candidate in (yield ModelRequest(sentence, with_alternatives=True)):
        if not changed_spans(sentence, candidate.text):
            return candidate.text
    if any(span.startswith("<") for span in changed):
        text = yield from _translate_as_html(sentence)
        if not changed_spans(sentence, text):
            return text
    text = yield from _translate_around(sentence, changed)
    if changed_spans(sentence, text):
        text = yield from _translate_around(sentence, find_all(sentence))
    return text


def _translate_as_html(sentence: str) -> _Steps:
    document = HtmlDocument(sentence)
    translations = []
    for segment in document.segments:
        best, *_ = yield segment
        translations.append(best)
    return document.render(translations)


def _translate_around(sentence: str, spans: Collection[str]) -> _Steps:
    """Translate the parts between protected spans separately, and copy the spans."""
    parts = []
    for part, is_protected in split_at_spans(sentence, spans):
        if is_protected or not has_translatable_text(part):
            parts.append(part)
        else:
            best, *_ = yield ModelRequest(part)
            parts.append(fit_to_source(best.text, part))
    return "".join(parts)

"""The rule that keeps URLs, placeholders and numbers in translations, without a model."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.protected_spans import changed_spans, has_translatable_text
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.protected_sentence import ModelRequest, ProtectedSentence
from dragoman.documents.tag_projection import project_tags

PIECES = st.sampled_from(
    ["word", "a", ".", "1,000.5", "17", "%d", "{name}", "<b>", "</b>", "<br>", "&amp;", "www.a.b/c"]
)


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_the_rule_keeps_the_spans_whatever_the_model_writes(sentence: str) -> None:
    protected = ProtectedSentence(sentence)
    requests = 0
    while protected.request is not None:
        requests += 1
        is_marked = isinstance(protected.request, MarkedText)
        protected.answer([project_tags(protected.request, "x", [])] if is_marked else [MarkedText("x")])
    assert not changed_spans(sentence, protected.translation)
    assert bool(requests) == has_translatable_text(sentence)


def test_the_next_best_translation_that_keeps_the_spans_is_taken() -> None:
    protected = ProtectedSentence("Pay 17 now.")
    assert protected.request == ModelRequest("Pay 17 now.")
    protected.answer([MarkedText("Zahle jetzt.")])
    assert protected.request == ModelRequest("Pay 17 now.", with_alternatives=True)
    protected.answer([MarkedText("Zahle jetzt."), MarkedText("Zahle 1 jetzt."), MarkedText("Zahle jetzt 17.")])
    assert (protected.request, protected.translation) == (None, "Zahle jetzt 17.")

"""Search for translations that contain the terms of a glossary.

A translation of the search that has all terms is kept as it is. Otherwise the search is repeated with forced prefixes:
the beginning of the translation up to some word, then the term. The model continues from there, so that it can inflect
the term and fits the rest of the sentence to it; of all places, the translation with the best score wins. If the model
never comes to the end of the term, it replaces the word where that costs the least score.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, SearchResult
from dragoman.decoding.glossary import Glossary, Term, count_forms, missing_terms
from dragoman.decoding.length_rules import check_n_best
from dragoman.decoding.line_translator import Attention, LineTranslator, SourceTokens, Translation

TRIED_PLACES = 6
"""Places of a term that are searched, those where the model finds it most likely."""
MAX_PLACES = 60
MAX_PLACED_TERMS = 8
"""Terms of a sentence that are searched for, one after the other, if the model has missed them."""
_WORD_START = "▁"


def enforce_terms(
    translator: CTranslate2Translator, source: SourceTokens, found: Sequence[SearchResult], terms: Sequence[Term]
) -> list[SearchResult]:
    """The translations of a sentence, best first, where those with the most terms come first."""
    tokenizer = translator.tokenizer

    def missing(result: SearchResult) -> list[Term]:
        return missing_terms(terms, tokenizer.decode(result.tokens))

    # The first of equally good ones, which has the best score.
    best = min(found, key=lambda result: len(missing(result)))
    beginnings = [best, *found]
    for _ in terms[:MAX_PLACED_TERMS]:
        wrong = missing(best)
        if not wrong:
            break
        for candidates in (
            _place_term(translator, source, beginnings, wrong[0]),
            _replace_word(translator, source, best, wrong[0]),
        ):
            better = [candidate for candidate in candidates if len(missing(candidate)) < len(wrong)]
            if better:
                best = max(better, key=lambda candidate: candidate.score)
                break
        beginnings = [best]
    return [best, *(result for result in found if result is not best)]


def _place_term(
    translator: CTranslate2Translator, source: SourceTokens, translations: Sequence[SearchResult], term: Term
) -> Iterator[SearchResult]:
    """Translations that contain the term, each after another beginning of the given ones."""
    tokenizer = translator.tokenizer
    beginnings = dict.fromkeys(
        tuple(translation.tokens[:place])
        for translation in translations
        for place, token in enumerate(translation.tokens)
        if place == 0 or tokenizer.pieces[token].startswith(_WORD_START)
    )
    wanted = count_forms(tokenizer.decode(translations[0].tokens), term.target) + 1
    places = [
        (len(beginning), [*beginning, *_encode_term(translator, term, is_first=not beginning)])
        for beginning in list(beginnings)[:MAX_PLACES]
        if count_forms(tokenizer.decode(beginning), term.target) < wanted
    ]
    likelihoods = translator.log_probabilities([(source, prefix) for _, prefix in places])
    # The last log-probability is that of the end token, which does not follow.
    means = [
        sum(values[begin:-1]) / (len(prefix) - begin)
        for (begin, prefix), values in zip(places, likelihoods, strict=True)
    ]
    best = sorted(range(len(places)), key=lambda place: -means[place])[:TRIED_PLACES]
    results = translator.search_from([(source, places[place][1]) for place in best])
    yield from (result for result in results if count_forms(tokenizer.decode(result.tokens), term.target) == wanted)


def _replace_word(
    translator: CTranslate2Translator, source: SourceTokens, translation: SearchResult, term: Term
) -> Iterator[SearchResult]:
    """Translations with the term in place of one of the words: the last resort, if the model never ends the term."""
    pieces, tokens = translator.tokenizer.pieces, translation.tokens
    starts = [place for place, token in enumerate(tokens) if pieces[token].startswith(_WORD_START)][:MAX_PLACES]
    replaced = [
        [*tokens[:begin], *_encode_term(translator, term, is_first=begin == 0), *punctuation, *tokens[end:]]
        for begin, end in pairwise([*starts, len(tokens)])
        for punctuation in [[token for token in tokens[begin:end] if not any(map(str.isalnum, pieces[token]))]]
    ] or [_encode_term(translator, term, is_first=True)]
    yield from translator.score([(source, changed) for changed in replaced])


def _encode_term(translator: CTranslate2Translator, term: Term, *, is_first: bool) -> list[int]:
    text = term.target[:1].upper() + term.target[1:] if is_first else term.target
    return translator.tokenizer.encode(text, "target")


@dataclass(frozen=True)
class TermCheck:
    """The terms of a source text that its translation contains, and those that it lacks."""

    applied: list[Term]
    missing: list[Term]


class GlossaryTranslator(LineTranslator):
    """Translates with CTranslate2 and a glossary."""

    def __init__(self, translator: CTranslate2Translator, glossary: Glossary) -> None:
        super().__init__(translator.tokenizer, translator.options, translator.languages)
        self._translator = translator
        self._glossary = glossary
        self.applied: Counter[Term] = Counter()
        """Terms of the lines so far that are in their translations."""
        self.missing: Counter[Term] = Counter()
        """Terms of the lines so far that are not."""

    def search(self, sources: Iterable[SourceTokens], n_best: int) -> dict[SourceTokens, list[SearchResult]]:
        check_n_best(n_best, self.options)
        terms = {source: self._glossary.find_terms(self.tokenizer.decode(source)) for source in sources}
        found = self._translator.search(terms, self.options.beam)
        return {
            source: enforce_terms(self._translator, source, results, terms[source])[:n_best]
            if terms[source]
            else results[:n_best]
            for source, results in found.items()
        }

    def attention(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[Attention]:
        return self._translator.attention(pairs)

    def log_probabilities(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[list[float]]:
        return self._translator.log_probabilities(pairs)

    def translate_scored(self, lines: Sequence[str], n_best: int = 1) -> list[Translation]:
        translations = super().translate_scored(lines, n_best)
        for line, translation in zip(lines, translations, strict=True):
            self.count_terms(line, translation.text)
        return translations

    def count_terms(self, text: str, translation: str) -> None:
        """Count the terms of a text by whether its translation contains them."""
        check = check_terms(text, translation, self._glossary)
        self.applied.update(check.applied)
        self.missing.update(check.missing)


def check_terms(text: str, translation: str, glossary: Glossary) -> TermCheck:
    """The terms of a text by whether its translation contains them."""
    terms = glossary.find_terms(text)
    missing = missing_terms(terms, translation)
    remaining = list(missing)
    applied = []
    for term in terms:
        if term in remaining:
            remaining.remove(term)
        else:
            applied.append(term)
    return TermCheck(applied, missing)

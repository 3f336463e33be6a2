"""Glossaries: terms with their required translations, found in a sentence and checked in its translation.

Both are compared without case and diacritics, and in their simple inflections: `dogs` contains the term `dog`, and
`Hunden` or `Häuser` are forms of `Hund` and `Haus`.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.sources import Languages, Source, read_pairs
from dragoman.corpus.text_normalization import limit_combining_marks
from dragoman.errors import DragomanError

MAX_TERMS = 10_000
MAX_TERM_CHARACTERS = 200
MAX_TERM_WORDS = 10
MAX_ENDING = 3
"""Letters that an inflected form may have more than its term."""
MIN_STEM = 3
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ENDINGS = {
    "en": ("s", "es", "'s", "’s"),
    "de": ("e", "n", "en", "s", "es", "er", "ern", "em"),
    "fr": ("s", "x", "e", "es"),
    "es": ("s", "es"),
    "pt": ("s", "es"),
    "nl": ("s", "n", "en", "e"),
}
"""Endings of a term in the source text, by language. Other languages need each form as a term of its own."""


@dataclass(frozen=True)
class Term:
    """A term with its translation."""

    source: str
    target: str


class Glossary:
    """Terms of one direction of translation."""

    def __init__(self, terms: Mapping[str, str], language: str) -> None:
        """`language` is that of the terms, and decides their endings."""
        self.terms = terms
        self._endings = ("", *_ENDINGS.get(language.split("-", maxsplit=1)[0].lower(), ()))
        self._by_words: dict[tuple[str, ...], Term] = {}
        lengths: dict[str, set[int]] = {}
        for source, target in terms.items():
            words = tuple(_words(source))
            self._by_words.setdefault(words, Term(source, target))
            lengths.setdefault(words[0] if len(words) > 1 else "", set()).add(len(words))
        self._lengths = {first: sorted(counts, reverse=True) for first, counts in lengths.items()}
        """Numbers of words of the terms of several words that begin with a word."""

    def find_terms(self, sentence: str) -> list[Term]:
        """The terms of a sentence in their order, as often as they occur; of overlapping ones the longest."""
        found, words, index = [], _words(sentence), 0
        while index < len(words):
            for length in (*self._lengths.get(words[index], ()), 1):
                term = self._look_up(words[index : index + length])
                if term is not None:
                    found.append(term)
                    index += length - 1
                    break
            index += 1
        return found

    def _look_up(self, words: Sequence[str]) -> Term | None:
        """The term that words are, in one of its forms."""
        *head, last = words
        for ending in self._endings:
            if last.endswith(ending) and (term := self._by_words.get((*head, last.removesuffix(ending)))):
                return term
        return None


@dataclass(frozen=True)
class GlossaryFile:
    """A file of terms, and the direction that it is for; None is that of the only model."""

    path: Path
    languages: Languages | None = None


def read_glossary(path: Path, languages: Languages) -> Glossary:
    """Read a file with a term and its translation per line: TSV, or CSV by its name."""
    source = Source(path.stem, (path,), "csv" if path.suffix.lower() == ".csv" else "tsv")
    pairs = [
        (term.decode(errors="replace"), target.decode(errors="replace"))
        for term, target in read_pairs(source, languages)
    ]
    return make_glossary(pairs, languages.source, str(path))


def make_glossary(pairs: Iterable[tuple[str, str]], language: str, place: str) -> Glossary:
    """A glossary of valid terms; all problems are reported at once."""
    terms: dict[str, str] = {}
    problems = []
    for term, target in ((term.strip(), target.strip()) for term, target in pairs):
        if not _words(term) or not _words(target):
            problems.append(f"{term or target!r} needs a term and a translation with letters")
        elif max(len(term), len(target)) > MAX_TERM_CHARACTERS:
            problems.append(f"{term[:40]!r} is longer than {MAX_TERM_CHARACTERS} characters")
        elif len(_words(term)) > MAX_TERM_WORDS:
            problems.append(f"{term[:40]!r} has more than {MAX_TERM_WORDS} words")
        elif terms.setdefault(term, target) != target:
            problems.append(f"{term!r} has two translations: keep one")
    if len(terms) > MAX_TERMS:
        problems.append(f"it has {len(terms):,} terms: keep at most {MAX_TERMS:,}")
    if problems:
        listed = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
        raise DragomanError(f"{place}: the glossary is not valid: {listed}.")
    return Glossary(terms, language)


def count_forms(text: str, target: str) -> int:
    """How often a translation contains a term or one of its inflected forms."""
    return _TranslatedWords(text).count(target)


def missing_terms(terms: Sequence[Term], translation: str) -> list[Term]:
    """The terms whose translations do not occur as often as they should."""
    words = _TranslatedWords(translation)
    left = {target: words.count(target) for target in {term.target for term in terms}}
    missing = []
    for term in terms:
        left[term.target] -= 1
        if left[term.target] < 0:
            missing.append(term)
    return missing


class _TranslatedWords:
    """The words of a translation, by their first letters."""

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._places: dict[str, list[int]] = {}
        for place, word in enumerate(self._words):
            self._places.setdefault(word[:MIN_STEM], []).append(place)

    def count(self, target: str) -> int:
        term = _words(target)
        return sum(
            len(self._words) - place >= len(term) and all(map(_is_form, self._words[place : place + len(term)], term))
            for place in self._places.get(term[0][:MIN_STEM], ())
        )


def _is_form(word: str, term: str) -> bool:
    """True for the term, and for a word with the same stem and another ending."""
    if word == term:
        return True
    stem = term.rstrip("aeiou")
    stem = stem if len(stem) >= MIN_STEM else term
    return len(stem) >= MIN_STEM and word.startswith(stem) and len(word) <= len(term) + MAX_ENDING


def _words(text: str) -> list[str]:
    """The words of a text without case and diacritics."""
    if text.isascii():
        return _WORD.findall(text.lower())
    decomposed = unicodedata.normalize("NFD", limit_combining_marks(text.casefold()))
    return _WORD.findall("".join(character for character in decomposed if not unicodedata.combining(character)))

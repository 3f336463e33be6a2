"""The demo corpus: English-German sentence pairs generated from a grammar and a lexicon of our own.

A clause is drawn once, as a structure that belongs to neither language (`author`, `clause`), and written twice
(`english`, `german`), so both sides are right by construction, and each English sentence has exactly one translation.

The test set asks for more than memory: some combinations of words (an adjective with a noun, a verb with its object)
are held out. Every test sentence contains one, and no sentence of the training or validation set contains any, though
all their words occur there in other company.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.demo.clause_structure import Attribute, NounPhrase, Sentence, noun_phrases
from dragoman.corpus.demo.english import english
from dragoman.corpus.demo.german import german
from dragoman.corpus.demo.lexicon import Lexicon, Noun, load_lexicon
from dragoman.corpus.demo.sentence_generator import Author

HELD_OUT_SHARE = 0.04
FEWEST_PARTNERS = 6
"""A word that goes with fewer nouns than this keeps them all, so that what remains still shows its use."""
SHORTEST_WORDS, LONGEST_WORDS = 3, 16

Combination = tuple[str, str]
"""An adjective or a verb, and a noun: ("red", "apple"), ("to eat", "apple")."""


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of English and German sentences. No English sentence occurs twice, within a set or between two."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]
    """Sentences with a combination of words that neither of the other sets contains."""


def generate(pairs: int, seed: int = 1, *, valid: int = 500, test: int = 500) -> DemoCorpus:
    """A corpus of `pairs` training pairs, and of `valid` and `test` further ones; the same for the same arguments."""
    lexicon, rng = load_lexicon(), random.Random(seed)
    held_out = held_out_combinations(lexicon, seed)
    author = Author(lexicon, rng)
    seen: set[str] = set()
    familiar: list[tuple[str, str]] = []
    unfamiliar: list[tuple[str, str]] = []
    while len(familiar) < pairs + valid or len(unfamiliar) < test:
        sentence = author.sentence()
        source = english(sentence)
        if source in seen or not SHORTEST_WORDS <= source.count(" ") + 1 <= LONGEST_WORDS:
            continue
        seen.add(source)
        chosen = familiar if held_out.isdisjoint(combinations(sentence)) else unfamiliar
        chosen.append((source, german(sentence)))
    # Short sentences come early, because they soon repeat: the validation set is drawn from the whole.
    rng.shuffle(familiar)
    return DemoCorpus(familiar[valid : valid + pairs], familiar[:valid], unfamiliar[:test])


def version() -> str:
    """Changes with grammar and lexicon, so that text kept from another state of them is told apart."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in (".py", ".toml"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def held_out_combinations(lexicon: Lexicon, seed: int) -> frozenset[Combination]:
    """The combinations that only the test set of this seed contains."""
    partners = [(f"to {verb.key}", verb.object) for verb in lexicon.verbs.values()]
    partners += [(adjective.en, adjective.of) for adjective in lexicon.adjectives.values()]
    candidates = [
        (word, noun.en)
        for word, nouns in partners
        if len(nouns) >= FEWEST_PARTNERS
        for noun in nouns
        if isinstance(noun, Noun)
    ]
    # A generator of its own: what is held out depends on the seed alone, not on the sentences drawn.
    rng = random.Random(f"held out {seed}")
    return frozenset(rng.sample(candidates, round(len(candidates) * HELD_OUT_SHARE)))


def combinations(sentence: Sentence) -> Iterator[Combination]:
    """The adjective-noun and verb-object combinations of a sentence; "the book is long" counts as "long book"."""
    for clause in filter(None, (sentence.main, sentence.dependent)):
        if isinstance(clause.direct, NounPhrase):
            yield f"to {clause.verb.key}", clause.direct.noun.en
        if isinstance(clause.attribute, Attribute):
            for compared in (clause.subject, clause.attribute.than):
                if isinstance(compared, NounPhrase):
                    yield clause.attribute.adjective.en, compared.noun.en
        for phrase in noun_phrases(clause):
            if phrase.adjective is not None:
                yield phrase.adjective.en, phrase.noun.en

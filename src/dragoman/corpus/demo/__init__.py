"""The demo corpus: English-German sentence pairs generated from a small grammar and lexicon.

Each sentence is drawn as a language-independent structure (`sentence_generator`, `clause_structure`) and then written
in both languages (`english`, `german`). So both sides are correct, and each English sentence has one translation.

The test set measures generalization: some word combinations (an adjective with a noun, a verb with its object) are held
out. Every test sentence contains one of them, and no training or validation sentence does, although all words of the
test set occur there in other combinations.
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
from dragoman.corpus.demo.sentence_generator import SentenceGenerator

HELD_OUT_FRACTION = 0.04
MIN_NOUNS = 6
"""Combinations are held out only of words that combine with at least this many nouns, so that enough remain."""
MIN_WORDS, MAX_WORDS = 3, 16

Combination = tuple[str, str]
"""An adjective or a verb, and a noun: ("red", "apple"), ("to eat", "apple")."""


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of English and German sentences. No English sentence occurs twice in the three sets."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]
    """Sentences with a word combination that the other sets do not contain."""


def generate(pairs: int, seed: int = 1, *, valid: int = 500, test: int = 500) -> DemoCorpus:
    """Generate `pairs` training pairs and further `valid` and `test` pairs. The same arguments give the same corpus."""
    lexicon, rng = load_lexicon(), random.Random(seed)
    held_out = held_out_combinations(lexicon, seed)
    generator = SentenceGenerator(lexicon, rng)
    seen: set[str] = set()
    training: list[tuple[str, str]] = []
    testing: list[tuple[str, str]] = []
    while len(training) < pairs + valid or len(testing) < test:
        sentence = generator.sentence()
        source = english(sentence)
        if source in seen or not MIN_WORDS <= source.count(" ") + 1 <= MAX_WORDS:
            continue
        seen.add(source)
        split = training if held_out.isdisjoint(combinations(sentence)) else testing
        split.append((source, german(sentence)))
    # Short sentences come first, because they soon repeat: shuffle before the validation set is taken.
    rng.shuffle(training)
    return DemoCorpus(training[valid : valid + pairs], training[:valid], testing[:test])


def version() -> str:
    """A hash of grammar and lexicon, to recognise text that another version generated."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in (".py", ".toml"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def held_out_combinations(lexicon: Lexicon, seed: int) -> frozenset[Combination]:
    """The combinations that occur only in the test set of this seed."""
    nouns_of = [(f"to {verb.key}", verb.object) for verb in lexicon.verbs.values()]
    nouns_of += [(adjective.en, adjective.of) for adjective in lexicon.adjectives.values()]
    candidates = [
        (word, noun.en)
        for word, nouns in nouns_of
        if len(nouns) >= MIN_NOUNS
        for noun in nouns
        if isinstance(noun, Noun)
    ]
    # A separate random generator: the selection depends only on the seed, not on the sentences drawn.
    rng = random.Random(f"held out {seed}")
    return frozenset(rng.sample(candidates, round(len(candidates) * HELD_OUT_FRACTION)))


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

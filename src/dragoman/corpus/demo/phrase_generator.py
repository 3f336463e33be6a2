"""Generates the parts of clauses: noun phrases, places and times that make sense together."""

import random
from collections.abc import Sequence
from typing import TypeVar

from dragoman.corpus.demo import numbers_and_dates
from dragoman.corpus.demo.clause_structure import (
    Adposition,
    Case,
    Determiner,
    Nominal,
    NounPhrase,
    Person,
    Pronoun,
    Tense,
)
from dragoman.corpus.demo.lexicon import Adjective, Lexicon, Name, Noun, Phrase, Referent, Verb

T = TypeVar("T")

POSSESSIVE_OF = {
    Person.I: Determiner.MY,
    Person.YOU: Determiner.YOUR,
    Person.HE: Determiner.HIS,
    Person.SHE: Determiner.HER,
    Person.WE: Determiner.OUR,
    Person.THEY: Determiner.THEIR,
}
PEOPLE = tuple(POSSESSIVE_OF)
POSSESSIVES = tuple(POSSESSIVE_OF.values())
SPOTS = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"))
SPOT_NOUNS = ("table", "bed", "sofa", "desk", "cupboard", "chair")
OWNED_KINDS = {
    "animal",
    "writing",
    "composition",
    "clothing",
    "item",
    "device",
    "furniture",
    "opening",
    "vehicle",
    "room",
    "thought",
}
PERSONAL_KINDS = ("person", "kin", "woman_name", "man_name")
FIRST_YEAR, LAST_YEAR = 2005, 2024


class PhraseGenerator:
    """Draws phrases at random from a lexicon."""

    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon = lexicon
        self.rng = rng
        self.owners = [word for kind in ("person", "woman_name", "man_name") for word in lexicon.kinds[kind]]
        self.spot_nouns = [lexicon.nouns[en] for en in SPOT_NOUNS]
        self.adjectives_of: dict[Referent, list[Adjective]] = {noun: [] for noun in lexicon.nouns.values()}
        for adjective in lexicon.adjectives.values():
            for noun in adjective.of:
                if isinstance(noun, Noun):
                    self.adjectives_of[noun].append(adjective)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choose(self, items: Sequence[T]) -> T:
        # Not rng.choice: this takes half the time of the generator, and a float is precise enough for short lists.
        return items[int(self.rng.random() * len(items))]

    # People and things

    def subject(self, verb: Verb, positive: bool = True) -> Nominal:
        if not verb.subject:
            return Pronoun(Person.IT)
        word = self.choose(verb.subject)
        if is_person(word) and self.chance(0.3):
            return Pronoun(self.choose(PEOPLE))
        if positive and isinstance(word, Noun) and word.kind == "person" and self.chance(0.06):
            return NounPhrase(word, Determiner.EVERY)
        return self.nominal(word, indefinite=0.1 if positive else 0)

    def object(self, word: Referent, indefinite: float, pronoun: float = 0.25) -> Nominal:
        if is_person(word) and self.chance(pronoun):
            return Pronoun(self.choose(PEOPLE))
        return self.nominal(word, indefinite / 3 if is_person(word) else indefinite)

    def nominal(self, word: Referent, indefinite: float = 0.0) -> Nominal:
        return word if isinstance(word, Name) else self.noun_phrase(word, indefinite)

    def noun_phrase(self, noun: Noun, indefinite: float = 0.0) -> NounPhrase:
        """A noun phrase; `indefinite` is the probability of "a book", "books" or "milk"."""
        adjective = self.choose(self.adjectives_of[noun]) if self.adjectives_of[noun] and self.chance(0.3) else None
        plural = noun.plural is not None and self.chance(0.2)
        if noun.kind == "kin":
            return self.owned(noun, plural, adjective)
        if self.chance(indefinite):
            bare = noun.mass or plural
            return NounPhrase(noun, Determiner.BARE if bare else Determiner.INDEFINITE, plural, adjective)
        if noun.kind in OWNED_KINDS and self.chance(0.3):
            return self.owned(noun, plural, adjective)
        determiner = Determiner.THIS if self.chance(0.15) else Determiner.DEFINITE
        return NounPhrase(noun, determiner, plural, adjective)

    def owned(self, noun: Noun, plural: bool, adjective: Adjective | None) -> NounPhrase:
        """A phrase with an owner: "my dog", "Anna's dog", "the teacher's dog"."""
        if self.chance(0.6):
            return NounPhrase(noun, self.choose(POSSESSIVES), plural, adjective)
        word = self.choose(self.owners)
        owner = (
            word if isinstance(word, Name) else NounPhrase(word, plural=word.plural is not None and self.chance(0.15))
        )
        return NounPhrase(noun, Determiner.DEFINITE, plural, adjective, owner)

    def counted(self, noun: Noun, many: bool) -> NounPhrase:
        count = self.rng.randrange(13, 60) if many and self.chance(0.4) else self.rng.randrange(2, 13)
        adjective = self.choose(self.adjectives_of[noun]) if self.adjectives_of[noun] and self.chance(0.2) else None
        return NounPhrase(
            noun, Determiner.BARE, plural=True, adjective=adjective, count=numbers_and_dates.number(count)
        )

    # Places and times

    def place(self, word: Referent, going: bool = False) -> Adposition:
        """Location takes the dative, direction the accusative, except with "zu" and "nach"."""
        pair = word.to if going else word.at
        assert pair is not None, f"{word.en} is not a place"
        en, de = pair
        case = Case.ACCUSATIVE if going and de not in ("zu", "nach") else Case.DATIVE
        return Adposition(en, de, case, self.place_phrase(word))

    def place_phrase(self, word: Referent) -> Nominal:
        if isinstance(word, Name):
            return word
        adjective = self.choose(self.adjectives_of[word]) if self.adjectives_of[word] and self.chance(0.15) else None
        return NounPhrase(word, Determiner.DEFINITE, adjective=adjective)

    def spot(self, case: Case) -> Adposition:
        en, de = self.choose(SPOTS)
        return Adposition(en, de, case, self.place_phrase(self.choose(self.spot_nouns)))

    def time(self, tense: Tense) -> Phrase:
        """A time adverbial for the tense. The simple past always has one: "they read" alone is ambiguous."""
        section = self.lexicon.phrases
        if tense is Tense.PRESENT:
            return self.clock() if self.chance(0.25) else self.choose(section["time.present"])
        if self.chance(0.2):
            day = self.choose(section["weekday"])
            return Phrase(f"on {day.en}", f"am {day.de}")
        if tense is Tense.FUTURE:
            if self.chance(0.15):
                return numbers_and_dates.date(self.rng.randrange(1, 29), self.choose(section["month"]))
            return self.choose(section["time.future"])
        if self.chance(0.2):
            year = self.rng.randrange(FIRST_YEAR, LAST_YEAR + 1)
            return numbers_and_dates.date(self.rng.randrange(1, 29), self.choose(section["month"]), year)
        if self.chance(0.1):
            year = self.rng.randrange(FIRST_YEAR, LAST_YEAR + 1)
            return Phrase(f"in {year}", f"im Jahr {year}")
        if self.chance(0.2):
            span, count = self.choose(section["span"]), numbers_and_dates.number(self.rng.randrange(2, 11))
            return Phrase(f"{count.en} {span.en} ago", f"vor {count.de} {span.de}")
        return self.choose(section["time.past"])

    def clock(self) -> Phrase:
        minute = self.rng.randrange(1, 60) if self.chance(0.3) else self.choose((0, 15, 30, 45))
        return numbers_and_dates.clock_time(self.rng.randrange(1, 12), minute)


def is_person(part: Nominal | Referent) -> bool:
    word = part.noun if isinstance(part, NounPhrase) else part
    return isinstance(word, Noun | Name) and word.kind in PERSONAL_KINDS


def pronoun_for(subject: Nominal) -> Pronoun | None:
    """The pronoun that can refer to the subject in the next clause, if it is unambiguous."""
    if isinstance(subject, Pronoun):
        return None if subject.person is Person.IT else subject
    if isinstance(subject, Name):
        return Pronoun(Person.SHE if subject.kind == "woman_name" else Person.HE)
    if isinstance(subject, NounPhrase) and is_person(subject) and subject.determiner is not Determiner.EVERY:
        if subject.plural:
            return Pronoun(Person.THEY)
        return {"m": Pronoun(Person.HE), "f": Pronoun(Person.SHE)}.get(subject.noun.gender)
    return None

"""Generates clauses: a verb with the participants, tense and adverbials that fit it."""

import random
from collections.abc import Sequence
from dataclasses import replace

from dragoman.corpus.demo.clause_structure import (
    Adposition,
    Attribute,
    Case,
    Clause,
    Nominal,
    NounPhrase,
    Person,
    Pronoun,
    Tense,
)
from dragoman.corpus.demo.german import noun_phrase
from dragoman.corpus.demo.lexicon import Adjective, Lexicon, Name, Phrase, Referent, Verb
from dragoman.corpus.demo.phrase_generator import PhraseGenerator

SPEAKERS = (Person.I, Person.WE, Person.YOU)


class ClauseGenerator:
    """Draws clauses at random for a given verb or adjective."""

    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon = lexicon
        self.rng = rng
        self.phrases = PhraseGenerator(lexicon, rng)
        self.choose, self.chance = self.phrases.choose, self.phrases.chance
        self.modals = tuple(lexicon.modals.values())

    def full_clause(self, verb: Verb, may_negate: bool = True) -> Clause:
        """A clause with a tense, possibly negated, and with adverbials that fit."""
        negated = may_negate and self.chance(0.17)
        clause = replace(self.with_tense(self.base_clause(verb, positive=not negated)), negated=negated)
        if verb.stative or negated:
            return clause
        if clause.tense is Tense.PERFECT and self.chance(0.5):
            clause = replace(clause, frequency=self.choose(self.lexicon.phrases["aspect"]))
        elif clause.tense is Tense.PRESENT and clause.modal is None:
            if self.chance(0.35):
                clause = replace(clause, time=self.phrases.time(Tense.PRESENT))
            elif self.chance(0.25):
                clause = replace(clause, frequency=self.choose(self.lexicon.phrases["frequency"]))
        clause = replace(clause, manner=self.manner(clause))
        if verb.at and clause.manner is None and clause.place is None and self.chance(0.3):
            clause = replace(clause, place=self.phrases.place(self.choose(verb.at)))
        if verb.means and self.chance(0.4):
            noun = self.lexicon.nouns[self.choose(verb.means)]
            clause = replace(clause, means=Phrase(f"by {noun.en}", f"mit {noun_phrase(NounPhrase(noun), Case.DATIVE)}"))
        return clause

    def base_clause(self, verb: Verb, subject: Nominal | None = None, positive: bool = True) -> Clause:
        """A clause in the present with everything the verb requires; `positive` allows what negation rules out."""
        subject = subject or self.phrases.subject(verb, positive)
        direct = self.direct_object(verb, subject, positive) if verb.object else None
        wants_recipient = verb.recipient and (not verb.says_to or self.chance(0.5))
        recipient = self.participant(verb.recipient, subject, 0.0) if wants_recipient else None
        oblique = None
        if verb.oblique:
            en, de, case = verb.oblique
            oblique = Adposition(en, de, Case(case), self.participant(verb.of, subject, 0.2 if positive else 0.0))
        place = None
        if verb.spot:
            place = self.phrases.spot(Case(verb.spot))
        elif verb.to:
            place = self.phrases.place(self.choose(verb.to), going=True)
        elif verb.place_needed:
            place = self.phrases.place(self.choose(verb.at))
        return Clause(subject, verb, direct=direct, recipient=recipient, oblique=oblique, place=place)

    def direct_object(self, verb: Verb, subject: Nominal, positive: bool) -> Nominal:
        indefinite = 0.0 if verb.definite else 1.0 if verb.indefinite else 0.45
        chosen = self.participant(verb.object, subject, indefinite)
        countable = isinstance(chosen, NounPhrase) and chosen.indefinite and chosen.noun.plural is not None
        if positive and countable and isinstance(chosen, NounPhrase) and self.chance(0.15):
            return self.phrases.counted(chosen.noun, verb.many)
        return chosen

    def participant(self, words: Sequence[Referent], subject: Nominal, indefinite: float) -> Nominal:
        """A participant other than the subject: otherwise a reflexive pronoun would be needed."""
        while True:
            chosen = self.phrases.object(self.choose(words), indefinite)
            if not same_person(chosen, subject):
                return chosen

    def with_tense(self, clause: Clause) -> Clause:
        """The clause in a random tense or with a modal, and with the time adverbial that the tense requires."""
        verb, draw = clause.verb, self.rng.random()
        if verb.stative:
            past = verb.preterite is not None and draw < 0.25
            return replace(clause, tense=Tense.PAST, time=self.phrases.time(Tense.PAST)) if past else clause
        if draw < 0.4:
            return clause
        if draw < 0.6:
            return replace(clause, tense=Tense.PAST, time=self.phrases.time(Tense.PAST))
        if draw < 0.7:
            return replace(clause, tense=Tense.PERFECT)
        if draw < 0.83 or verb.involuntary:
            time = self.phrases.time(Tense.FUTURE) if self.chance(0.7) else None
            return replace(clause, tense=Tense.FUTURE, time=time)
        modal = self.choose(self.modals)
        if modal.past and self.chance(0.3):
            return replace(clause, modal=modal, tense=Tense.PAST, time=self.phrases.time(Tense.PAST))
        return replace(clause, modal=modal, time=self.phrases.time(Tense.FUTURE) if self.chance(0.2) else None)

    def copular_clause(self, subject: Nominal, adjective: Adjective) -> Clause:
        tense = Tense.PAST if self.chance(0.25) else Tense.PRESENT
        return Clause(
            subject, self.lexicon.verbs["be"], tense=tense, attribute=Attribute(adjective), negated=self.chance(0.2)
        )

    def manner(self, clause: Clause) -> Phrase | None:
        indefinite = isinstance(clause.direct, NounPhrase) and clause.direct.indefinite
        if not clause.verb.manner or clause.frequency or indefinite or not self.chance(0.25):
            return None
        wanted = self.choose(clause.verb.manner)
        return next(phrase for phrase in self.lexicon.phrases["manner"] if phrase.en == wanted)

    def plain_nominal(self, word: Referent) -> Nominal:
        """A definite phrase without an adjective, for clauses that state one."""
        phrase = self.phrases.nominal(word)
        return replace(phrase, adjective=None) if isinstance(phrase, NounPhrase) else phrase


def same_person(one: Nominal, other: Nominal) -> bool:
    if isinstance(one, Pronoun) and isinstance(other, Pronoun):
        return one == other or (one.person in SPEAKERS and other.person in SPEAKERS)
    if isinstance(one, NounPhrase) and isinstance(other, NounPhrase):
        return one.noun is other.noun
    return isinstance(one, Name) and one is other

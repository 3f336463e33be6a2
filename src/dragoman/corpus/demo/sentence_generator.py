"""Generates sentences: chooses a pattern and a verb, and fills the structures of clause_structure.py."""

import random
from collections.abc import Callable
from dataclasses import replace

from dragoman.corpus.demo import numbers_and_dates
from dragoman.corpus.demo.clause_generator import ClauseGenerator
from dragoman.corpus.demo.clause_structure import (
    Attribute,
    Clause,
    Determiner,
    Interrogative,
    Mood,
    Nominal,
    NounPhrase,
    Person,
    Pronoun,
    Sentence,
    Tense,
)
from dragoman.corpus.demo.lexicon import Lexicon, Noun, Phrase
from dragoman.corpus.demo.phrase_generator import is_person, pronoun_for

WHEN = Phrase("when", "wann")
WHY = Phrase("why", "warum")
HOW_OFTEN = Phrase("how often", "wie oft")
WHERE = Phrase("where", "wo")
WHERE_TO = Phrase("where", "wohin")
HOW_MUCH = Phrase("how much", "wie viel")
PRICE_RANGE_EUROS = {
    "food": (1, 12),
    "item": (2, 40),
    "clothing": (15, 200),
    "device": (40, 1500),
    "furniture": (60, 1500),
}
CENTS = (0, 0, 20, 50, 80, 95, 99)


class SentenceGenerator:
    """Draws sentences at random. The same lexicon and seed give the same sentences."""

    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon = lexicon
        self.rng = rng
        self.clauses = ClauseGenerator(lexicon, rng)
        self.phrases = self.clauses.phrases
        self.choose, self.chance = self.phrases.choose, self.phrases.chance
        people = lexicon.verbs["help"].subject
        verbs = [verb for verb in lexicon.verbs.values() if not verb.own_pattern]
        self.verbs = [verb for verb in verbs if verb.clause is None for _ in range(verb.weight)]
        self.complement_verbs = [verb for verb in verbs if verb.clause is not None]
        self.voluntary_verbs = [verb for verb in self.verbs if not verb.stative and not verb.involuntary]
        self.personal_verbs = [verb for verb in self.voluntary_verbs if len(verb.subject) >= len(people)]
        weather = [lexicon.verbs["rain"], lexicon.verbs["snow"]]
        self.other_subject_verbs = self.voluntary_verbs + weather * 4
        self.motion_verbs = [verb for verb in self.voluntary_verbs if verb.to]
        self.personal_adjectives = self.phrases.adjectives_of[lexicon.nouns["mother"]]
        self.adjectives = tuple(lexicon.adjectives.values())
        self.comparable_adjectives = [adjective for adjective in self.adjectives if adjective.more]
        self.priced_nouns = [noun for noun in lexicon.nouns.values() if noun.kind in PRICE_RANGE_EUROS]
        self.patterns: list[Callable[[], Sentence]] = []
        for weight, pattern in (
            (34, self.statement),
            (8, self.yes_no_question),
            (11, self.open_question),
            (5, self.command),
            (9, self.description),
            (4, self.comparison),
            (5, self.amount),
            (15, self.with_subordinate_clause),
            (9, self.with_complement_clause),
        ):
            self.patterns += [pattern] * weight

    def sentence(self) -> Sentence:
        return self.choose(self.patterns)()

    def statement(self) -> Sentence:
        clause = self.clauses.full_clause(self.choose(self.verbs))
        return Sentence(replace(clause, front="time") if clause.time and self.chance(0.5) else clause)

    def yes_no_question(self) -> Sentence:
        return Sentence(as_question(self.clauses.full_clause(self.choose(self.verbs), may_negate=False), front=None))

    def open_question(self) -> Sentence:
        """A question about a participant or a circumstance: who, what, why, when, where."""
        clause = self.clauses.with_tense(self.clauses.base_clause(self.choose(self.verbs)))
        verb, direct, oblique = clause.verb, clause.direct, clause.oblique
        choices = [replace(clause, asked=WHY, front="asked")]
        if is_person(clause.subject):
            choices += [replace(clause, subject=Interrogative(animate=True), front="subject")]
        if not verb.stative and clause.time is None and clause.tense is not Tense.PERFECT:
            choices += [replace(clause, asked=WHEN, front="asked")]
            if clause.tense is Tense.PRESENT and clause.modal is None:
                choices += [replace(clause, asked=HOW_OFTEN, front="asked")]
        if verb.to or verb.at:
            choices += [replace(clause, asked=WHERE_TO if verb.to else WHERE, place=None, front="asked")] * 2
        if isinstance(direct, NounPhrase):
            choices += [replace(clause, direct=asked, front="direct") for asked in self.interrogatives(direct)]
        elif clause.recipient is not None and is_person(clause.recipient):
            choices += [replace(clause, recipient=Interrogative(animate=True), front="recipient")]
        elif oblique is not None and is_person(oblique.nominal):
            whom = replace(oblique, nominal=Interrogative(animate=True))
            choices += [replace(clause, oblique=whom, front="oblique")]
        choice = self.choose(choices)
        return Sentence(as_question(choice, choice.front))

    def command(self) -> Sentence:
        negated = self.chance(0.3)
        clause = self.clauses.base_clause(
            self.choose(self.voluntary_verbs), subject=Pronoun(Person.YOU), positive=not negated
        )
        manner = None if negated else self.clauses.manner(clause)
        return Sentence(replace(clause, mood=Mood.COMMAND, negated=negated, manner=manner))

    def description(self) -> Sentence:
        """A statement or question with "be": "the house is old", "Anna is 52 years old"."""
        if self.chance(0.12):
            years = numbers_and_dates.number(self.rng.randrange(3, 90))
            age = Phrase(f"{years.en} years old", f"{years.de} Jahre alt")
            subject = self.clauses.plain_nominal(
                self.choose(self.lexicon.kinds[self.choose(("woman_name", "man_name"))])
            )
            return Sentence(Clause(subject, self.lexicon.verbs["be"], attribute=age))
        adjective = self.choose(self.adjectives)
        clause = self.clauses.copular_clause(self.clauses.plain_nominal(self.choose(adjective.of)), adjective)
        if self.chance(0.25):
            return Sentence(as_question(replace(clause, negated=False), front=None))
        return Sentence(clause)

    def comparison(self) -> Sentence:
        """A comparison: "my dog is older than the cat", "this book is as long as your letter"."""
        adjective = self.choose(self.comparable_adjectives)
        word = self.choose(adjective.of)
        others = [other for other in adjective.of if other.kind == word.kind and other is not word]
        if not others:
            return self.description()
        attribute = Attribute(adjective, self.clauses.plain_nominal(self.choose(others)), equal=self.chance(0.3))
        subject, be = self.clauses.plain_nominal(word), self.lexicon.verbs["be"]
        return Sentence(Clause(subject, be, attribute=attribute, negated=self.chance(0.15)))

    def amount(self) -> Sentence:
        """Prices and numbers of inhabitants."""
        if self.chance(0.25):
            people = numbers_and_dates.number(self.rng.randrange(2, 400) * 50)
            inhabitants = Phrase(f"{people.en} inhabitants", f"{people.de} Einwohner")
            return Sentence(
                Clause(
                    self.clauses.plain_nominal(self.choose(self.lexicon.kinds["town"][:2])),
                    self.lexicon.verbs["have"],
                    direct=inhabitants,
                )
            )
        noun = self.choose(self.priced_nouns)
        clause = Clause(self.phrases.noun_phrase(noun), self.lexicon.verbs["cost"], direct=self.price_of(noun))
        if self.chance(0.25):
            return Sentence(as_question(replace(clause, direct=None, asked=HOW_MUCH), front="asked"))
        return Sentence(clause)

    def with_subordinate_clause(self) -> Sentence:
        """A reason, a condition, a contrast or a purpose. Both clauses have the same tense, so that they make sense."""
        if self.chance(0.15):
            main = self.clauses.with_tense(self.clauses.base_clause(self.choose(self.motion_verbs)))
            purpose = self.clauses.base_clause(self.choose(self.voluntary_verbs), subject=Pronoun(Person.THEY))
            return Sentence(main, self.lexicon.conjunctions["in order to"], purpose)
        conjunction = self.lexicon.conjunctions[self.choose(("because", "because", "although", "if", "while", "but"))]
        verbs = self.voluntary_verbs if conjunction.en in ("if", "while") else self.verbs
        main = self.clauses.full_clause(self.choose(verbs), may_negate=conjunction.en != "while")
        if conjunction.en in ("if", "while") and main.tense is not Tense.PRESENT:
            main = replace(main, tense=Tense.PRESENT, time=None, frequency=None)
        first = conjunction.en in ("if", "although", "while") and self.chance(0.5)
        subject, pronoun = main.subject, pronoun_for(main.subject) if self.chance(0.6) else None
        if pronoun and first:  # The pronoun follows its noun: "If Martin is tired, he sleeps."
            main = replace(main, subject=pronoun)
        tense = Tense.PAST if main.tense is Tense.PAST else Tense.PRESENT
        if pronoun and conjunction.en != "while" and self.chance(0.5):
            adjective = self.choose(self.personal_adjectives)
            dependent = replace(self.clauses.copular_clause(subject, adjective), tense=tense)
        else:
            verb = self.choose(self.personal_verbs if pronoun else self.other_subject_verbs)
            dependent = self.clauses.base_clause(verb, subject if pronoun else None)
            if tense is Tense.PAST:
                # Without a time adverbial, "they read" would be ambiguous.
                dependent = replace(dependent, tense=Tense.PERFECT if verb.past == verb.en else Tense.PAST)
            elif verb.subject and conjunction.en != "while" and self.chance(0.3):
                dependent = replace(dependent, modal=self.choose(self.clauses.modals))
        if pronoun and not first:
            dependent = replace(dependent, subject=pronoun)
        return Sentence(main, conjunction, dependent, dependent_first=first)

    def with_complement_clause(self) -> Sentence:
        """A verb with a clause as its complement: somebody says that ..., asks whether ..., tries to ..."""
        verb = self.choose(self.complement_verbs)
        main = self.clauses.with_tense(Clause(self.phrases.subject(verb), verb))
        if main.time:  # At the end it would belong to the clause that follows.
            main = replace(main, front="time")
        if verb.clause == "to":
            dependent = self.clauses.base_clause(self.choose(self.voluntary_verbs), subject=Pronoun(Person.THEY))
        elif self.chance(0.25):
            adjective = self.choose(self.adjectives)
            dependent = self.clauses.copular_clause(self.clauses.plain_nominal(self.choose(adjective.of)), adjective)
        else:
            dependent = self.clauses.full_clause(self.choose(self.verbs), may_negate=verb.clause == "that")
            if main.tense is Tense.PAST and dependent.tense is not Tense.PAST:  # English would shift the tense.
                main = replace(main, tense=Tense.PRESENT, time=None, front="subject")
        return Sentence(main, self.lexicon.conjunctions[verb.clause or "that"], dependent)

    def interrogatives(self, direct: NounPhrase) -> list[Nominal]:
        """The ways to ask for an object: what, which book, how many books."""
        noun, is_kin = direct.noun, direct.noun.kind == "kin"
        choices: list[Nominal] = [Interrogative(animate=is_person(direct))]
        if not is_kin:
            choices.append(NounPhrase(noun, Determiner.WHICH, direct.plural, direct.adjective))
        if not is_kin and noun.plural:
            choices.append(NounPhrase(noun, Determiner.HOW_MANY, plural=True))
        return choices

    def price_of(self, noun: Noun) -> Phrase:
        low, high = PRICE_RANGE_EUROS[noun.kind]
        euros = self.rng.randrange(low, high + 1)
        if euros >= 100:
            return numbers_and_dates.price(euros // 10 * 1000)
        return numbers_and_dates.price(euros * 100 + self.choose(CENTS))


def as_question(clause: Clause, front: str | None) -> Clause:
    """The clause as a question. "I" becomes "you": nobody asks about themselves."""
    subject = Pronoun(Person.YOU) if clause.subject == Pronoun(Person.I) else clause.subject
    return replace(clause, subject=subject, mood=Mood.QUESTION, front=front)

"""Invents sentences: chooses a pattern and a verb, and fills the structures of clause.py with words that fit."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.corpus.demo import numbers_and_dates
from dragoman.corpus.demo.clause_structure import (
    Adposition,
    Attribute,
    Case,
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
from dragoman.corpus.demo.german import noun_phrase
from dragoman.corpus.demo.lexicon import Adjective, Lexicon, Name, Noun, Phrase, Referent, Verb
from dragoman.corpus.demo.phrase_generator import Phrases, is_person, pronoun_for

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
SPEAKERS = (Person.I, Person.WE, Person.YOU)


class Author:
    """Draws one sentence after another. The same lexicon and the same seed give the same sentences."""

    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon = lexicon
        self.rng = rng
        self.phrases = Phrases(lexicon, rng)
        self.one_of, self.chance = self.phrases.one_of, self.phrases.chance
        self.people = lexicon.verbs["help"].subject
        verbs = [verb for verb in lexicon.verbs.values() if not verb.own_pattern]
        self.verbs = [verb for verb in verbs if verb.clause is None for _ in range(verb.weight)]
        self.clausal_verbs = [verb for verb in verbs if verb.clause is not None]
        self.willed_verbs = [verb for verb in self.verbs if not verb.stative and not verb.involuntary]
        self.verbs_of_people = [verb for verb in self.willed_verbs if len(verb.subject) >= len(self.people)]
        weather = [lexicon.verbs["rain"], lexicon.verbs["snow"]]
        self.verbs_of_circumstance = self.willed_verbs + weather * 4
        self.motion_verbs = [verb for verb in self.willed_verbs if verb.to]
        self.modals = tuple(lexicon.modals.values())
        self.moods_of_people = self.phrases.adjectives_of[lexicon.nouns["mother"]]
        self.adjectives = tuple(lexicon.adjectives.values())
        self.comparable = [adjective for adjective in self.adjectives if adjective.more]
        self.priced = [noun for noun in lexicon.nouns.values() if noun.kind in PRICE_RANGE_EUROS]
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
            (9, self.with_completing_clause),
        ):
            self.patterns += [pattern] * weight

    def sentence(self) -> Sentence:
        return self.one_of(self.patterns)()

    # Patterns of sentences

    def statement(self) -> Sentence:
        clause = self.adorned(self.one_of(self.verbs))
        return Sentence(replace(clause, front="time") if clause.time and self.chance(0.5) else clause)

    def yes_no_question(self) -> Sentence:
        return Sentence(as_question(self.adorned(self.one_of(self.verbs), may_negate=False), front=None))

    def open_question(self) -> Sentence:
        """A question for a participant or a circumstance."""
        clause = self.inflected(self.core(self.one_of(self.verbs)))
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
            choices += [replace(clause, direct=want, front="direct") for want in self.interrogatives(direct)]
        elif clause.recipient is not None and is_person(clause.recipient):
            choices += [replace(clause, recipient=Interrogative(animate=True), front="recipient")]
        elif oblique is not None and is_person(oblique.nominal):
            whom = replace(oblique, nominal=Interrogative(animate=True))
            choices += [replace(clause, oblique=whom, front="oblique")]
        choice = self.one_of(choices)
        return Sentence(as_question(choice, choice.front))

    def command(self) -> Sentence:
        negated = self.chance(0.3)
        clause = self.core(self.one_of(self.willed_verbs), subject=Pronoun(Person.YOU), positive=not negated)
        manner = None if negated else self.manner(clause)
        return Sentence(replace(clause, mood=Mood.COMMAND, negated=negated, manner=manner))

    def description(self) -> Sentence:
        """Something is as an adjective says: "the house is old", "Anna is 52 years old"."""
        if self.chance(0.12):
            years = numbers_and_dates.number(self.rng.randrange(3, 90))
            age = Phrase(f"{years.en} years old", f"{years.de} Jahre alt")
            subject = self.unadorned(self.one_of(self.lexicon.kinds[self.one_of(("woman_name", "man_name"))]))
            return Sentence(Clause(subject, self.lexicon.verbs["be"], attribute=age))
        adjective = self.one_of(self.adjectives)
        clause = self.copular(self.unadorned(self.one_of(adjective.of)), adjective)
        if self.chance(0.25):
            return Sentence(as_question(replace(clause, negated=False), front=None))
        return Sentence(clause)

    def comparison(self) -> Sentence:
        """Two of a kind: "my dog is older than the cat", "this book is as long as your letter"."""
        adjective = self.one_of(self.comparable)
        word = self.one_of(adjective.of)
        rivals = [other for other in adjective.of if other.kind == word.kind and other is not word]
        if not rivals:
            return self.description()
        attribute = Attribute(adjective, self.unadorned(self.one_of(rivals)), equal=self.chance(0.3))
        subject, be = self.unadorned(word), self.lexicon.verbs["be"]
        return Sentence(Clause(subject, be, attribute=attribute, negated=self.chance(0.15)))

    def amount(self) -> Sentence:
        """Prices and numbers of inhabitants."""
        if self.chance(0.25):
            people = numbers_and_dates.number(self.rng.randrange(2, 400) * 50)
            inhabitants = Phrase(f"{people.en} inhabitants", f"{people.de} Einwohner")
            return Sentence(
                Clause(
                    self.unadorned(self.one_of(self.lexicon.kinds["town"][:2])),
                    self.lexicon.verbs["have"],
                    direct=inhabitants,
                )
            )
        noun = self.one_of(self.priced)
        clause = Clause(self.phrases.noun_phrase(noun), self.lexicon.verbs["cost"], direct=self.price_of(noun))
        if self.chance(0.25):
            return Sentence(as_question(replace(clause, direct=None, asked=HOW_MUCH), front="asked"))
        return Sentence(clause)

    def with_subordinate_clause(self) -> Sentence:
        """A reason, a condition, a contrast or a purpose. Both clauses keep to one time, so that they make sense."""
        if self.chance(0.15):
            main = self.inflected(self.core(self.one_of(self.motion_verbs)))
            purpose = self.core(self.one_of(self.willed_verbs), subject=Pronoun(Person.THEY))
            return Sentence(main, self.lexicon.links["in order to"], purpose)
        link = self.lexicon.links[self.one_of(("because", "because", "although", "if", "while", "but"))]
        verbs = self.willed_verbs if link.en in ("if", "while") else self.verbs
        main = self.adorned(self.one_of(verbs), may_negate=link.en != "while")
        if link.en in ("if", "while") and main.tense is not Tense.PRESENT:
            main = replace(main, tense=Tense.PRESENT, time=None, frequency=None)
        first = link.en in ("if", "although", "while") and self.chance(0.5)
        named, again = main.subject, pronoun_for(main.subject) if self.chance(0.6) else None
        if again and first:  # the pronoun follows what it stands for: "If Martin is tired, he sleeps."
            main = replace(main, subject=again)
        tense = Tense.PAST if main.tense is Tense.PAST else Tense.PRESENT
        if again and link.en != "while" and self.chance(0.5):
            dependent = replace(self.copular(named, self.one_of(self.moods_of_people)), tense=tense)
        else:
            verb = self.one_of(self.verbs_of_people if again else self.verbs_of_circumstance)
            dependent = self.core(verb, named if again else None)
            if tense is Tense.PAST:
                # Without a time of its own, "they read" would be in doubt.
                dependent = replace(dependent, tense=Tense.PERFECT if verb.past == verb.en else Tense.PAST)
            elif verb.subject and link.en != "while" and self.chance(0.3):
                dependent = replace(dependent, modal=self.one_of(self.modals))
        if again and not first:
            dependent = replace(dependent, subject=again)
        return Sentence(main, link, dependent, dependent_first=first)

    def with_completing_clause(self) -> Sentence:
        """What somebody says, asks, tries or forgets."""
        verb = self.one_of(self.clausal_verbs)
        main = self.inflected(Clause(self.phrases.subject(verb), verb))
        if main.time:  # at the end it would seem to belong to the clause that follows
            main = replace(main, front="time")
        if verb.clause == "to":
            dependent = self.core(self.one_of(self.willed_verbs), subject=Pronoun(Person.THEY))
        elif self.chance(0.25):
            adjective = self.one_of(self.adjectives)
            dependent = self.copular(self.unadorned(self.one_of(adjective.of)), adjective)
        else:
            dependent = self.adorned(self.one_of(self.verbs), may_negate=verb.clause == "that")
            if main.tense is Tense.PAST and dependent.tense is not Tense.PAST:  # English would shift the tense
                main = replace(main, tense=Tense.PRESENT, time=None, front="subject")
        return Sentence(main, self.lexicon.links[verb.clause or "that"], dependent)

    # Clauses

    def adorned(self, verb: Verb, may_negate: bool = True) -> Clause:
        """A clause with its tense, perhaps negated, and with an adverb, a manner or a place where they fit."""
        negated = may_negate and self.chance(0.17)
        clause = replace(self.inflected(self.core(verb, positive=not negated)), negated=negated)
        if verb.stative or negated:
            return clause
        if clause.tense is Tense.PERFECT and self.chance(0.5):
            clause = replace(clause, frequency=self.one_of(self.lexicon.phrases["aspect"]))
        elif clause.tense is Tense.PRESENT and clause.modal is None:
            if self.chance(0.35):
                clause = replace(clause, time=self.phrases.time(Tense.PRESENT))
            elif self.chance(0.25):
                clause = replace(clause, frequency=self.one_of(self.lexicon.phrases["frequency"]))
        clause = replace(clause, manner=self.manner(clause))
        if verb.at and clause.manner is None and clause.place is None and self.chance(0.3):
            clause = replace(clause, place=self.phrases.place(self.one_of(verb.at)))
        if verb.means and self.chance(0.4):
            noun = self.lexicon.nouns[self.one_of(verb.means)]
            clause = replace(
                clause, company=Phrase(f"by {noun.en}", f"mit {noun_phrase(NounPhrase(noun), Case.DATIVE)}")
            )
        return clause

    def core(self, verb: Verb, subject: Nominal | None = None, positive: bool = True) -> Clause:
        """A clause in the present with everything that the verb calls for; `positive` admits what negation does not."""
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
            place = self.phrases.place(self.one_of(verb.to), going=True)
        elif verb.place_needed:
            place = self.phrases.place(self.one_of(verb.at))
        return Clause(subject, verb, direct=direct, recipient=recipient, oblique=oblique, place=place)

    def direct_object(self, verb: Verb, subject: Nominal, positive: bool) -> Nominal:
        indefinite = 0.0 if verb.definite else 1.0 if verb.indefinite else 0.45
        chosen = self.participant(verb.object, subject, indefinite)
        countable = isinstance(chosen, NounPhrase) and chosen.indefinite and chosen.noun.plural is not None
        if positive and countable and isinstance(chosen, NounPhrase) and self.chance(0.15):
            return self.phrases.counted(chosen.noun, verb.many)
        return chosen

    def participant(self, words: Sequence[Referent], subject: Nominal, indefinite: float) -> Nominal:
        """Another than the subject: nobody sees themselves here, since that would need a reflexive."""
        while True:
            chosen = self.phrases.object(self.one_of(words), indefinite)
            if not same_person(chosen, subject):
                return chosen

    def inflected(self, clause: Clause) -> Clause:
        """The clause in a tense, or with a modal, and with the time that the tense calls for."""
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
        modal = self.one_of(self.modals)
        if modal.past and self.chance(0.3):
            return replace(clause, modal=modal, tense=Tense.PAST, time=self.phrases.time(Tense.PAST))
        return replace(clause, modal=modal, time=self.phrases.time(Tense.FUTURE) if self.chance(0.2) else None)

    def copular(self, subject: Nominal, adjective: Adjective) -> Clause:
        tense = Tense.PAST if self.chance(0.25) else Tense.PRESENT
        return Clause(
            subject, self.lexicon.verbs["be"], tense=tense, attribute=Attribute(adjective), negated=self.chance(0.2)
        )

    def manner(self, clause: Clause) -> Phrase | None:
        indefinite = isinstance(clause.direct, NounPhrase) and clause.direct.indefinite
        if not clause.verb.manner or clause.frequency or indefinite or not self.chance(0.25):
            return None
        wanted = self.one_of(clause.verb.manner)
        return next(phrase for phrase in self.lexicon.phrases["manner"] if phrase.en == wanted)

    def unadorned(self, word: Referent) -> Nominal:
        """A definite phrase without an adjective, for clauses whose point is the adjective."""
        phrase = self.phrases.nominal(word)
        return replace(phrase, adjective=None) if isinstance(phrase, NounPhrase) else phrase

    def interrogatives(self, direct: NounPhrase) -> list[Nominal]:
        """What, which book, how many books."""
        noun, is_kin = direct.noun, direct.noun.kind == "kin"
        wanted: list[Nominal] = [Interrogative(animate=is_person(direct))]
        if not is_kin:
            wanted.append(NounPhrase(noun, Determiner.WHICH, direct.plural, direct.adjective))
        if not is_kin and noun.plural:
            wanted.append(NounPhrase(noun, Determiner.HOW_MANY, plural=True))
        return wanted

    def price_of(self, noun: Noun) -> Phrase:
        low, high = PRICE_RANGE_EUROS[noun.kind]
        euros = self.rng.randrange(low, high + 1)
        if euros >= 100:
            return numbers_and_dates.price(euros // 10 * 1000)
        return numbers_and_dates.price(euros * 100 + self.one_of(CENTS))


def as_question(clause: Clause, front: str | None) -> Clause:
    """Nobody asks about their own doings, so "I" becomes "you"."""
    subject = Pronoun(Person.YOU) if clause.subject == Pronoun(Person.I) else clause.subject
    return replace(clause, subject=subject, mood=Mood.QUESTION, front=front)


def same_person(one: Nominal, other: Nominal) -> bool:
    if isinstance(one, Pronoun) and isinstance(other, Pronoun):
        return one == other or (one.person in SPEAKERS and other.person in SPEAKERS)
    if isinstance(one, NounPhrase) and isinstance(other, NounPhrase):
        return one.noun is other.noun
    return isinstance(one, Name) and one is other

"""The language-independent structure of sentences, which english.py and german.py turn into text."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dragoman.corpus.demo.lexicon import Adjective, Conjunction, Modal, Name, Noun, Phrase, Verb


class Case(Enum):
    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"
    GENITIVE = "genitive"


class Person(Enum):
    """Pronouns. English "you" is always the polite "Sie", so that it has only one translation."""

    I = "I"  # noqa: E741 - the pronoun
    YOU = "you"
    HE = "he"
    SHE = "she"
    IT = "it"
    WE = "we"
    THEY = "they"


class Agreement(Enum):
    """The three verb forms that occur, each named after a pronoun."""

    I = 0  # noqa: E741
    SHE = 1
    THEY = 2


class Determiner(Enum):
    DEFINITE = "the"
    INDEFINITE = "a"
    BARE = ""
    THIS = "this"
    EVERY = "every"
    WHICH = "which"
    HOW_MANY = "how many"
    MY = "my"
    YOUR = "your"
    HIS = "his"
    HER = "her"
    OUR = "our"
    THEIR = "their"


class Tense(Enum):
    PRESENT = "present"
    PAST = "past"
    PERFECT = "perfect"
    FUTURE = "future"


class Mood(Enum):
    STATEMENT = "statement"
    QUESTION = "question"
    COMMAND = "command"


@dataclass(frozen=True)
class Pronoun:
    person: Person


@dataclass(frozen=True)
class Interrogative:
    """The pronoun "who" or "what"."""

    animate: bool


@dataclass(frozen=True)
class NounPhrase:
    noun: Noun
    determiner: Determiner = Determiner.DEFINITE
    plural: bool = False
    adjective: Adjective | None = None
    owner: "NounPhrase | Name | None" = None
    """An owner makes the phrase definite: "the teacher's dog"."""
    count: Phrase | None = None
    """A numeral instead of the determiner."""

    @property
    def indefinite(self) -> bool:
        """True if German negates it with "kein" and puts it late in the clause."""
        return self.owner is None and self.determiner in (
            Determiner.INDEFINITE,
            Determiner.BARE,
            Determiner.HOW_MANY,
        )


Nominal = NounPhrase | Name | Pronoun | Interrogative | Phrase


@dataclass(frozen=True)
class Adposition:
    """A noun phrase with a preposition, and the case that the German one governs."""

    en: str
    de: str
    case: Case
    nominal: Nominal


@dataclass(frozen=True)
class Attribute:
    """A predicative adjective: plain, or compared with "than" (unequal) or "as" (equal)."""

    adjective: Adjective
    than: Nominal | None = None
    equal: bool = False


@dataclass(frozen=True)
class Clause:
    subject: Nominal
    verb: Verb
    mood: Mood = Mood.STATEMENT
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    negated: bool = False
    direct: Nominal | None = None
    recipient: Nominal | None = None
    oblique: Adposition | None = None
    attribute: Attribute | Phrase | None = None
    place: Adposition | Phrase | None = None
    means: Adposition | Phrase | None = None
    """By which transport: "by train"."""
    time: Phrase | None = None
    frequency: Phrase | None = None
    """An adverb before the English verb: often, never, already."""
    manner: Phrase | None = None
    asked: Phrase | None = None
    """An interrogative adverb: when, why, where."""
    front: str | None = "subject"
    """The field of this class that comes first; None in a yes/no question."""


@dataclass(frozen=True)
class Sentence:
    main: Clause
    conjunction: Conjunction | None = None
    dependent: Clause | None = None
    dependent_first: bool = False


def agreement_of(subject: Nominal) -> Agreement:
    if isinstance(subject, Pronoun):
        if subject.person is Person.I:
            return Agreement.I
        return Agreement.SHE if subject.person in (Person.HE, Person.SHE, Person.IT) else Agreement.THEY
    return Agreement.THEY if isinstance(subject, NounPhrase) and subject.plural else Agreement.SHE


def noun_phrases(clause: Clause) -> Iterator[NounPhrase]:
    """All noun phrases of a clause, including owners."""
    adpositions = (part for part in (clause.oblique, clause.place, clause.means) if isinstance(part, Adposition))
    than = clause.attribute.than if isinstance(clause.attribute, Attribute) else None
    found: list[Nominal | None] = [clause.subject, clause.direct, clause.recipient, than]
    found += [adposition.nominal for adposition in adpositions]
    for nominal in found:
        if isinstance(nominal, NounPhrase):
            yield nominal
            if isinstance(nominal.owner, NounPhrase):
                yield nominal.owner

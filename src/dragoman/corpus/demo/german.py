"""German text for the structures of clause_structure.py: word order. The word forms come from german_morphology.py.

A clause is a verbal frame around a middle field. Only the frame differs between clause types: the finite verb is second
in a statement, first in a yes/no question, last in a subordinate clause, and absent in an infinitive clause.
"""

from collections.abc import Iterator

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
    Pronoun,
    Sentence,
    Tense,
    agreement_of,
)
from dragoman.corpus.demo.german_morphology import (
    AUXILIARY,
    CASES,
    CONTRACTION,
    PRONOUN,
    WHO,
    column_of,
    declension_after,
    decline_adjective,
    decline_determiner,
    decline_noun,
    infinitive,
    modal_form,
    past_participle,
    present_form,
    preterite_form,
)
from dragoman.corpus.demo.lexicon import Name, Phrase


def german(sentence: Sentence) -> str:
    """The sentence as German text, with capital letter and final punctuation."""
    punctuation = "?" if sentence.main.mood is Mood.QUESTION else "."
    conjunction, dependent = sentence.conjunction, sentence.dependent
    if conjunction is None or dependent is None:
        words = verb_second(sentence.main)
    elif sentence.dependent_first:  # The clause takes the first position, so the verb follows it.
        words = f"{conjunction.de} {verb_final(dependent)}, {verb_first(sentence.main)}"
    else:
        build = {"subordinate": verb_final, "coordinate": verb_second, "infinitive": zu_infinitive}[conjunction.joins]
        words = f"{verb_second(sentence.main)}, {join(conjunction.de, build(dependent))}"
    return words[0].upper() + words[1:] + punctuation


def verb_second(clause: Clause) -> str:
    if clause.mood is Mood.COMMAND:
        return f"bitte {verb_first(clause)}"
    if clause.front is None:
        return verb_first(clause)
    fields = dict(middle_field(clause))
    first = fields.pop(clause.front)
    finite, final = main_frame(clause)
    return join(first, finite, *fields.values(), final)


def verb_first(clause: Clause) -> str:
    finite, final = main_frame(clause)
    return join(finite, *dict(middle_field(clause)).values(), final)


def verb_final(clause: Clause) -> str:
    finite, final = verbal_frame(clause)
    prefix = "" if final else clause.verb.prefix
    return join(*dict(middle_field(clause)).values(), final, prefix + finite)


def zu_infinitive(clause: Clause) -> str:
    fields = dict(middle_field(clause))
    del fields["subject"]
    return join(*fields.values(), infinitive(clause.verb, with_zu=True))


def main_frame(clause: Clause) -> tuple[str, str]:
    """Both parts of the frame in a main clause, where a simple verb loses its separable prefix."""
    finite, final = verbal_frame(clause)
    return finite, final or clause.verb.prefix


def verbal_frame(clause: Clause) -> tuple[str, str]:
    """The finite verb, and the infinitive or participle that closes the clause ("" for a simple verb)."""
    agreement, verb = agreement_of(clause.subject), clause.verb
    if clause.modal is not None:
        return modal_form(clause.modal, agreement, clause.tense is Tense.PAST), infinitive(verb)
    match clause.tense:
        case Tense.PRESENT:
            return present_form(verb, agreement), ""
        case Tense.FUTURE:
            return AUXILIARY["werden"][agreement.value], infinitive(verb)
        case Tense.PAST if verb.preterite:
            return preterite_form(verb.preterite, agreement), ""
        case _:  # Spoken German uses the perfect for the past.
            return AUXILIARY[verb.aux][agreement.value], past_participle(verb)


def middle_field(clause: Clause) -> Iterator[tuple[str, str]]:
    """The fields of a clause in German order, each with its words; the caller removes the one that comes first.

    Pronouns come first, then definite objects, then time, adverbs and "nicht", then indefinite objects.
    """
    yield "subject", nominal(clause.subject, Case.NOMINATIVE)
    kein = clause.negated and is_indefinite(clause.direct)
    objects = [("recipient", clause.recipient, Case.DATIVE), ("direct", clause.direct, Case.ACCUSATIVE)]
    early = [entry for entry in objects if entry[1] is not None and not is_indefinite(entry[1])]
    for field, part, case in sorted(early, key=lambda entry: not isinstance(entry[1], Pronoun)):
        if part is not None:
            yield field, nominal(part, case)
    yield "time", adverbial(clause.time)
    yield "asked", adverbial(clause.asked)
    yield "frequency", adverbial(clause.frequency)
    yield "negation", "nicht" if clause.negated and not kein else ""
    for field, part, case in objects:
        if part is not None and is_indefinite(part):
            yield field, nominal(part, case, negated=kein)
    yield "manner", adverbial(clause.manner)
    yield "means", adverbial(clause.means)
    yield "oblique", adverbial(clause.oblique)
    yield "place", adverbial(clause.place)
    yield "attribute", attribute(clause.attribute)


def is_indefinite(part: Nominal | None) -> bool:
    return isinstance(part, Phrase) or (isinstance(part, NounPhrase) and part.indefinite)


def attribute(part: Attribute | Phrase | None) -> str:
    if not isinstance(part, Attribute):
        return adverbial(part)
    if part.than is None:
        return part.adjective.de
    standard = nominal(part.than, Case.NOMINATIVE)
    if part.equal or part.adjective.more is None:
        return f"so {part.adjective.de} wie {standard}"
    return f"{part.adjective.more[1]} als {standard}"


def adverbial(part: Adposition | Phrase | None) -> str:
    if not isinstance(part, Adposition):
        return part.de if part else ""
    words = nominal(part.nominal, part.case)
    article, _, rest = words.partition(" ")
    contracted = CONTRACTION.get(f"{part.de} {article}")
    return f"{contracted} {rest}" if contracted else f"{part.de} {words}"


def nominal(part: Nominal, case: Case, negated: bool = False) -> str:
    match part:
        case Pronoun():
            return PRONOUN[part.person][CASES.index(case)]
        case Interrogative():
            return WHO[CASES.index(case)] if part.animate else "was"
        case Phrase():
            return part.de
        case Name():
            return part.de + "s" if case is Case.GENITIVE else part.de
        case NounPhrase():
            return noun_phrase(part, case, negated)


def noun_phrase(phrase: NounPhrase, case: Case, negated: bool = False) -> str:
    """Determiner, adjective and noun in agreement. A name as owner comes first ("Annas Hund"), a noun last."""
    column = column_of(phrase.noun, phrase.plural)
    noun = decline_noun(phrase.noun, case, phrase.plural)
    determiner = phrase.determiner
    after = ""
    if isinstance(phrase.owner, Name):
        determiner = Determiner.BARE
        head = nominal(phrase.owner, Case.GENITIVE)
    elif phrase.count is not None:
        head = phrase.count.de
    else:
        head = decline_determiner(determiner, case, column, negated)
        after = noun_phrase(phrase.owner, Case.GENITIVE) if phrase.owner else ""
    adjective = ""
    if phrase.adjective is not None:
        declension = declension_after(determiner, negated)
        adjective = decline_adjective(phrase.adjective, declension, case, column)
    return join(head, adjective, noun, after)


def join(*parts: str) -> str:
    return " ".join(filter(None, parts))

"""English text for the structures of clause_structure.py: word forms and word order."""

from functools import cache

from dragoman.corpus.demo.clause_structure import (
    Adposition,
    Agreement,
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
    agreement_of,
)
from dragoman.corpus.demo.lexicon import Name, Noun, Phrase, Verb

OBJECT_FORM = {
    Person.I: "me",
    Person.YOU: "you",
    Person.HE: "him",
    Person.SHE: "her",
    Person.IT: "it",
    Person.WE: "us",
    Person.THEY: "them",
}
BE_PRESENT = {Agreement.I: "am", Agreement.SHE: "is", Agreement.THEY: "are"}
BE_PAST = {Agreement.I: "was", Agreement.SHE: "was", Agreement.THEY: "were"}
SIBILANTS = ("s", "x", "z", "ch", "sh")


def english(sentence: Sentence) -> str:
    """The sentence as English text, with capital letter and final punctuation."""
    punctuation = "?" if sentence.main.mood is Mood.QUESTION else "."
    words = finite_clause(sentence.main)
    conjunction, dependent = sentence.conjunction, sentence.dependent
    if conjunction is not None and dependent is not None:
        if conjunction.joins == "infinitive":
            words = f"{words} {conjunction.en} {infinitive_clause(dependent)}"
        elif sentence.dependent_first:
            words = f"{conjunction.en} {finite_clause(dependent)}, {words}"
        else:
            comma = "," if conjunction.joins == "coordinate" else ""
            words = f"{words}{comma} {conjunction.en} {finite_clause(dependent)}"
    return words[0].upper() + words[1:] + punctuation


def finite_clause(clause: Clause) -> str:
    if clause.mood is Mood.COMMAND:
        return join("please", "do not" if clause.negated else "", clause.verb.en, after_verb(clause))
    asks_subject = clause.front == "subject"
    inverted = clause.mood is Mood.QUESTION and not asks_subject
    auxiliary, verb = verb_group(clause, supported=clause.negated or inverted)
    negation = "not" if clause.negated else ""
    subject = nominal_subject(clause.subject)
    frequency = clause.frequency.en if clause.frequency else ""
    if inverted:
        return join(fronted(clause), auxiliary, subject, negation, frequency, verb, after_verb(clause))
    auxiliary = f"{auxiliary} {negation}" if auxiliary != "can" or not negation else "cannot"
    return join(fronted(clause), subject, auxiliary.strip(), frequency, verb, after_verb(clause))


def infinitive_clause(clause: Clause) -> str:
    return join(clause.verb.en, after_verb(clause))


def verb_group(clause: Clause, supported: bool) -> tuple[str, str]:
    """The finite auxiliary (or "") and the rest of the verb; `supported` requires do, does or did."""
    agreement, verb = agreement_of(clause.subject), clause.verb
    past = clause.tense is Tense.PAST
    if clause.modal is not None:
        forms = clause.modal.past if past and clause.modal.past else clause.modal.en
        form = forms[agreement.value]
        if not clause.modal.do_support:
            auxiliary, _, rest = form.partition(" ")
            return auxiliary, join(rest, verb.en)
        base = clause.modal.key
        return (do_form(agreement, past), f"{base} {verb.en}") if supported else ("", f"{form} {verb.en}")
    if clause.tense is Tense.FUTURE:
        return "will", verb.en
    if clause.tense is Tense.PERFECT:
        return "has" if agreement is Agreement.SHE else "have", past_participle(verb)
    if verb.en == "be":
        return (BE_PAST if past else BE_PRESENT)[agreement], ""
    if supported:
        return do_form(agreement, past), verb.en
    if past:
        return "", past_form(verb)
    return "", third_person(verb) if agreement is Agreement.SHE else verb.en


def do_form(agreement: Agreement, past: bool) -> str:
    return "did" if past else "does" if agreement is Agreement.SHE else "do"


def fronted(clause: Clause) -> str:
    """The words before the subject: an adverbial, or what is asked for."""
    match clause.front:
        case "time" if clause.time:
            return clause.time.en
        case "asked" if clause.asked:
            return clause.asked.en
        case "direct" if clause.direct:
            return (
                "who" if isinstance(clause.direct, Interrogative) and clause.direct.animate else nominal(clause.direct)
            )
        case "recipient" | "oblique":
            return "who"
    return ""


def after_verb(clause: Clause) -> str:
    verb = clause.verb
    direct = nominal(clause.direct) if clause.direct and clause.front != "direct" else ""
    recipient = nominal(clause.recipient) if clause.recipient and clause.front != "recipient" else ""
    if verb.says_to and recipient:
        objects = [direct, f"to {recipient}"]
    elif isinstance(clause.direct, Pronoun | Name):  # "picks him up", but "picks up the parcel"
        objects = [direct, verb.en_particle]
    else:
        objects = [verb.en_particle, recipient, direct]
    oblique = adverbial(clause.oblique) if clause.front != "oblique" else clause.oblique.en if clause.oblique else ""
    time = clause.time.en if clause.time and clause.front != "time" else ""
    return join(
        *objects,
        attribute(clause.attribute),
        adverbial(clause.manner),
        oblique,
        adverbial(clause.place),
        adverbial(clause.means),
        time,
    )


def attribute(part: Attribute | Phrase | None) -> str:
    if not isinstance(part, Attribute):
        return adverbial(part)
    if part.than is None:
        return part.adjective.en
    if part.equal or part.adjective.more is None:
        return f"as {part.adjective.en} as {nominal(part.than)}"
    return f"{part.adjective.more[0]} than {nominal(part.than)}"


def adverbial(part: Adposition | Phrase | None) -> str:
    if isinstance(part, Adposition):
        return f"{part.en} {nominal(part.nominal)}"
    return part.en if part else ""


def nominal_subject(part: Nominal) -> str:
    return part.person.value if isinstance(part, Pronoun) else nominal(part)


def nominal(part: Nominal) -> str:
    match part:
        case Pronoun():
            return OBJECT_FORM[part.person]
        case Interrogative():
            return "who" if part.animate else "what"
        case Name() | Phrase():
            return part.en
        case NounPhrase():
            return noun_phrase(part)


def noun_phrase(phrase: NounPhrase) -> str:
    noun = noun_form(phrase.noun, phrase.plural)
    words = f"{phrase.adjective.en} {noun}" if phrase.adjective else noun
    if phrase.count is not None:
        return f"{phrase.count.en} {words}"
    if phrase.owner is not None:
        owner = nominal(phrase.owner)
        plural_s = isinstance(phrase.owner, NounPhrase) and phrase.owner.plural and owner.endswith("s")
        return f"{owner}' {words}" if plural_s else f"{owner}'s {words}"
    match phrase.determiner:
        case Determiner.BARE:
            return words
        case Determiner.INDEFINITE:
            return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
        case Determiner.THIS:
            return f"{'these' if phrase.plural else 'this'} {words}"
    return f"{phrase.determiner.value} {words}"


@cache
def noun_form(noun: Noun, plural: bool) -> str:
    return (noun.en_plural or add_s(noun.en)) if plural else noun.en


@cache
def third_person(verb: Verb) -> str:
    if verb.en == "have":
        return "has"
    return on_first_word(verb.en, add_s(verb.en.split()[0], verbal=True))


@cache
def past_form(verb: Verb) -> str:
    return on_first_word(verb.en, verb.past or add_ed(verb.en.split()[0]))


@cache
def past_participle(verb: Verb) -> str:
    return on_first_word(verb.en, verb.en_participle) if verb.en_participle else past_form(verb)


def on_first_word(words: str, form: str) -> str:
    """Inflect the verb of a fixed pair such as "look for"."""
    return join(form, *words.split()[1:])


def add_s(word: str, verbal: bool = False) -> str:
    if ends_in_consonant_y(word):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(SIBILANTS) or (verbal and word.endswith("o")) else "s")


def add_ed(word: str) -> str:
    if ends_in_consonant_y(word):
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def ends_in_consonant_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in "aeiou"


def join(*parts: str) -> str:
    return " ".join(filter(None, parts))

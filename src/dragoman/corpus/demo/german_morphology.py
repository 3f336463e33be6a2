"""German word forms: articles, adjective endings, nouns, pronouns and verbs.

Tables are laid out as in grammar books: rows are cases (nominative, accusative, dative, genitive), columns are
masculine, feminine, neuter and plural. A dash means no ending.
"""

from functools import cache

from dragoman.corpus.demo.clause_structure import Agreement, Case, Determiner, Person
from dragoman.corpus.demo.lexicon import Adjective, Modal, Noun, Verb
from dragoman.text_lines import split_lines

CASES = (Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE, Case.GENITIVE)
COLUMNS = ("m", "f", "n", "pl")


def read_table(text: str) -> dict[tuple[Case, str], str]:
    """Parse a table of forms or endings, by case and column."""
    rows = [line.split() for line in split_lines(text.strip())]
    return {
        (case, column): "" if form == "-" else form
        for case, row in zip(CASES, rows, strict=True)
        for column, form in zip(COLUMNS, row, strict=True)
    }


DEFINITE_ARTICLE = read_table("""
    der die das die
    den die das die
    dem der dem den
    des der des der
""")
# dieser, jeder, welcher
DER_WORD_ENDING = read_table("""
    er  e   es  e
    en  e   es  e
    em  er  em  en
    es  er  es  er
""")
# ein, kein, mein
EIN_WORD_ENDING = read_table("""
    -   e   -   e
    en  e   -   e
    em  er  em  en
    es  er  es  er
""")
ADJECTIVE_ENDING = {
    "strong": read_table("""
        er  e   es  e
        en  e   es  e
        em  er  em  en
        en  er  en  er
    """),
    "weak": read_table("""
        e   e   e   en
        en  e   e   en
        en  en  en  en
        en  en  en  en
    """),
    "mixed": read_table("""
        er  e   es  en
        en  e   es  en
        en  en  en  en
        en  en  en  en
    """),
}
DER_WORD = {Determiner.THIS: "dies", Determiner.EVERY: "jed", Determiner.WHICH: "welch"}
EIN_WORD = {
    Determiner.INDEFINITE: "ein",
    Determiner.MY: "mein",
    Determiner.YOUR: "Ihr",
    Determiner.HIS: "sein",
    Determiner.HER: "ihr",
    Determiner.OUR: "unser",
    Determiner.THEIR: "ihr",
}
PRONOUN = {
    Person.I: ("ich", "mich", "mir"),
    Person.YOU: ("Sie", "Sie", "Ihnen"),
    Person.HE: ("er", "ihn", "ihm"),
    Person.SHE: ("sie", "sie", "ihr"),
    Person.IT: ("es", "es", "ihm"),
    Person.WE: ("wir", "uns", "uns"),
    Person.THEY: ("sie", "sie", "ihnen"),
}
WHO = ("wer", "wen", "wem")
AUXILIARY = {
    "haben": ("habe", "hat", "haben"),
    "sein": ("bin", "ist", "sind"),
    "werden": ("werde", "wird", "werden"),
}
INSEPARABLE_PREFIXES = ("be", "er", "ver", "ent", "zer")
CONTRACTION = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}


def column_of(noun: Noun, plural: bool) -> str:
    return "pl" if plural else noun.gender


@cache
def decline_noun(noun: Noun, case: Case, plural: bool) -> str:
    if plural:
        form = noun.plural or noun.de
        return form + "n" if case is Case.DATIVE and not form.endswith(("n", "s")) else form
    if noun.weak:
        return noun.de if case is Case.NOMINATIVE else noun.plural or noun.de
    if case is Case.GENITIVE and noun.gender != "f":
        return noun.genitive or noun.de + "s"
    return noun.de


@cache
def decline_adjective(adjective: Adjective, declension: str, case: Case, column: str) -> str:
    return (adjective.stem or adjective.de) + ADJECTIVE_ENDING[declension][case, column]


@cache
def decline_determiner(determiner: Determiner, case: Case, column: str, negated: bool) -> str:
    """The form of the determiner; if negated, "ein" and a missing article become "kein"."""
    if negated and determiner in (Determiner.INDEFINITE, Determiner.BARE):
        return "kein" + EIN_WORD_ENDING[case, column]
    if determiner is Determiner.DEFINITE:
        return DEFINITE_ARTICLE[case, column]
    if determiner in DER_WORD:
        return DER_WORD[determiner] + DER_WORD_ENDING[case, column]
    if determiner in EIN_WORD:
        return EIN_WORD[determiner] + EIN_WORD_ENDING[case, column]
    return "wie viele" if determiner is Determiner.HOW_MANY else ""


def declension_after(determiner: Determiner, negated: bool) -> str:
    """The declension of an adjective after a determiner: strong if the determiner does not show case and gender."""
    if determiner is Determiner.DEFINITE or determiner in DER_WORD:
        return "weak"
    return "mixed" if determiner in EIN_WORD or negated else "strong"


def verb_stem(verb: Verb) -> str:
    return verb.de.removesuffix("n") if verb.de.endswith(("eln", "ern")) else verb.de.removesuffix("en")


def add_t(stem: str) -> str:
    return stem + ("et" if stem.endswith(("t", "d")) else "t")


@cache
def present_form(verb: Verb, agreement: Agreement) -> str:
    if agreement is Agreement.I:
        return verb.first or verb_stem(verb) + "e"
    if agreement is Agreement.SHE:
        return verb.third or add_t(verb_stem(verb))
    return verb.de_plural or verb.de


@cache
def modal_form(modal: Modal, agreement: Agreement, past: bool) -> str:
    if past and modal.preterite:
        return preterite_form(modal.preterite, agreement)
    return modal.de if agreement is Agreement.THEY else modal.third


def preterite_form(preterite: str, agreement: Agreement) -> str:
    if agreement is not Agreement.THEY:
        return preterite
    return preterite + ("n" if preterite.endswith("e") else "en")


@cache
def past_participle(verb: Verb) -> str:
    if verb.participle:
        return verb.participle
    unprefixed = verb.de.startswith(INSEPARABLE_PREFIXES) or verb.de.endswith("ieren")
    return verb.prefix + ("" if unprefixed else "ge") + add_t(verb_stem(verb))


@cache
def infinitive(verb: Verb, with_zu: bool = False) -> str:
    """The infinitive: "aufmachen"; with zu "aufzumachen", without a prefix "zu lesen"."""
    if not with_zu:
        return verb.prefix + verb.de
    return f"{verb.prefix}zu{verb.de}" if verb.prefix else f"zu {verb.de}"

"""The demo corpus: correct German, disjoint splits, and reproducible text."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from dragoman.corpus.demo import DemoCorpus, combinations, generate, held_out_combinations
from dragoman.corpus.demo.clause_structure import (
    Adposition,
    Attribute,
    Case,
    Clause,
    Determiner,
    Interrogative,
    Mood,
    NounPhrase,
    Person,
    Pronoun,
    Sentence,
    Tense,
)
from dragoman.corpus.demo.english import english, noun_form, past_form, third_person
from dragoman.corpus.demo.english import past_participle as english_participle
from dragoman.corpus.demo.german import german
from dragoman.corpus.demo.german_morphology import (
    CASES,
    COLUMNS,
    decline_adjective,
    decline_noun,
    infinitive,
    past_participle,
)
from dragoman.corpus.demo.lexicon import Name, Phrase, load_lexicon
from dragoman.corpus.demo.numbers_and_dates import clock_time, date, number, price
from dragoman.corpus.demo.sentence_generator import SentenceGenerator

LEXICON = load_lexicon()
NOUN, VERB, ADJECTIVE, MODAL = LEXICON.nouns, LEXICON.verbs, LEXICON.adjectives, LEXICON.modals
CONJUNCTION = LEXICON.conjunctions
ME, YOU, HE, SHE, WE, THEY = (Pronoun(p) for p in (Person.I, Person.YOU, Person.HE, Person.SHE, Person.WE, Person.THEY))
ANNA = Name("Anna", "Anna", "woman_name")
BERLIN = Name("Berlin", "Berlin", "town")
MAY = Phrase("May", "Mai")
TODAY, YESTERDAY, TOMORROW = Phrase("today", "heute"), Phrase("yesterday", "gestern"), Phrase("tomorrow", "morgen")
WHO = Interrogative(animate=True)
WHAT = Interrogative(animate=False)


def the(noun: str, adjective: str | None = None, **more: object) -> NounPhrase:
    return phrase(Determiner.DEFINITE, noun, adjective, **more)


def a(noun: str, adjective: str | None = None, **more: object) -> NounPhrase:
    return phrase(Determiner.INDEFINITE, noun, adjective, **more)


def bare(noun: str, adjective: str | None = None, **more: object) -> NounPhrase:
    return phrase(Determiner.BARE, noun, adjective, **more)


def phrase(determiner: Determiner, noun: str, adjective: str | None = None, **more: object) -> NounPhrase:
    return NounPhrase(NOUN[noun], determiner, adjective=ADJECTIVE[adjective] if adjective else None, **more)


def says(subject: object, verb: str, **places: object) -> Sentence:
    return Sentence(Clause(subject, VERB[verb], **places))


def asks(subject: object, verb: str, front: str | None = None, **places: object) -> Sentence:
    return says(subject, verb, mood=Mood.QUESTION, front=front, **places)


def inside(noun: str) -> Adposition:
    return Adposition("in", "in", Case.DATIVE, the(noun))


def is_(adjective: str, **more: object) -> Attribute:
    return Attribute(ADJECTIVE[adjective], **more)


MY, YOUR, THIS, EVERY = Determiner.MY, Determiner.YOUR, Determiner.THIS, Determiner.EVERY
LAMP = {"direct": the("lamp")}
GOLDEN = [
    # genders, cases, the n-declension
    (says(the("teacher"), "see", direct=the("dog")), "The teacher sees the dog.", "Der Lehrer sieht den Hund."),
    (says(the("dog"), "see", direct=the("teacher")), "The dog sees the teacher.", "Der Hund sieht den Lehrer."),
    (says(the("boy"), "see", direct=the("student")), "The boy sees the student.", "Der Junge sieht den Studenten."),
    (says(the("cat"), "see", direct=the("bear")), "The cat sees the bear.", "Die Katze sieht den Bären."),
    (says(HE, "help", recipient=the("neighbour")), "He helps the neighbour.", "Er hilft dem Nachbarn."),
    (
        says(the("child", plural=True), "thank", recipient=the("woman", plural=True)),
        "The children thank the women.",
        "Die Kinder danken den Frauen.",
    ),
    (says(ME, "help", recipient=the("child", plural=True)), "I help the children.", "Ich helfe den Kindern."),
    # possessors
    (
        says(the("dog", owner=the("teacher")), "sleep"),
        "The teacher's dog sleeps.",
        "Der Hund des Lehrers schläft.",
    ),
    (
        says(SHE, "look for", direct=the("bag", "heavy", owner=the("boy"))),
        "She looks for the boy's heavy bag.",
        "Sie sucht die schwere Tasche des Jungen.",
    ),
    (
        says(the("hat", "old", owner=ANNA), "be", attribute=is_("dirty")),
        "Anna's old hat is dirty.",
        "Annas alter Hut ist schmutzig.",
    ),
    (
        says(the("car", owner=the("doctor", plural=True)), "be", attribute=is_("new")),
        "The doctors' car is new.",
        "Das Auto der Ärzte ist neu.",
    ),
    # adjective endings
    (says(WE, "buy", direct=a("coat", "expensive")), "We buy an expensive coat.", "Wir kaufen einen teuren Mantel."),
    (says(a("man", "old"), "laugh"), "An old man laughs.", "Ein alter Mann lacht."),
    (says(ME, "drink", direct=bare("wine", "red")), "I drink red wine.", "Ich trinke roten Wein."),
    (
        says(phrase(MY, "brother", "clever"), "answer", recipient=phrase(THIS, "guest", "polite")),
        "My clever brother answers this polite guest.",
        "Mein kluger Bruder antwortet diesem höflichen Gast.",
    ),
    (says(THEY, "see", direct=a("church", "high")), "They see a high church.", "Sie sehen eine hohe Kirche."),
    (
        says(the("child"), "run", place=Adposition("into", "in", Case.ACCUSATIVE, the("forest", "dark"))),
        "The child runs into the dark forest.",
        "Das Kind läuft in den dunklen Wald.",
    ),
    (says(phrase(EVERY, "girl"), "sing"), "Every girl sings.", "Jedes Mädchen singt."),
    # verb second, tenses
    (
        says(the("teacher"), "read", direct=a("book"), time=TODAY, front="time"),
        "Today the teacher reads a book.",
        "Heute liest der Lehrer ein Buch.",
    ),
    (
        says(the("nurse"), "read", direct=the("letter"), tense=Tense.PAST, time=YESTERDAY),
        "The nurse read the letter yesterday.",
        "Die Krankenschwester hat den Brief gestern gelesen.",
    ),
    (
        says(THEY, "go", tense=Tense.PERFECT, place=Adposition("to", "zu", Case.DATIVE, the("station"))),
        "They have gone to the station.",
        "Sie sind zum Bahnhof gegangen.",
    ),
    (
        says(
            ANNA,
            "travel",
            tense=Tense.FUTURE,
            place=Adposition("to", "nach", Case.DATIVE, BERLIN),
            time=TOMORROW,
            front="time",
        ),
        "Tomorrow Anna will travel to Berlin.",
        "Morgen wird Anna nach Berlin reisen.",
    ),
    # separable verbs
    (says(SHE, "turn|on", **LAMP), "She turns on the lamp.", "Sie schaltet die Lampe ein."),
    (
        says(SHE, "turn|on", tense=Tense.PERFECT, **LAMP),
        "She has turned on the lamp.",
        "Sie hat die Lampe eingeschaltet.",
    ),
    (says(SHE, "pick|up", direct=HE), "She picks him up.", "Sie holt ihn ab."),
    (
        Sentence(Clause(HE, VERB["forget.to"]), CONJUNCTION["to"], Clause(HE, VERB["close"], direct=the("door"))),
        "He forgets to close the door.",
        "Er vergisst, die Tür zuzumachen.",
    ),
    # modals and negation
    (
        says(YOU, "help", modal=MODAL["can"], recipient=ME, negated=True),
        "You cannot help me.",
        "Sie können mir nicht helfen.",
    ),
    (
        says(HE, "call", modal=MODAL["have to"], direct=the("hotel"), negated=True),
        "He does not have to call the hotel.",
        "Er muss das Hotel nicht anrufen.",
    ),
    (
        says(ME, "work", modal=MODAL["be allowed to"], tense=Tense.PAST, time=YESTERDAY, negated=True),
        "I was not allowed to work yesterday.",
        "Ich durfte gestern nicht arbeiten.",
    ),
    (says(ME, "have", direct=a("dog"), negated=True), "I do not have a dog.", "Ich habe keinen Hund."),
    (says(SHE, "drink", direct=bare("milk"), negated=True), "She does not drink milk.", "Sie trinkt keine Milch."),
    (says(SHE, "read", direct=the("book"), negated=True), "She does not read the book.", "Sie liest das Buch nicht."),
    (
        says(HE, "wait.for", oblique=Adposition("for", "auf", Case.ACCUSATIVE, the("bus")), negated=True),
        "He does not wait for the bus.",
        "Er wartet nicht auf den Bus.",
    ),
    (says(the("house"), "be", attribute=is_("old"), negated=True), "The house is not old.", "Das Haus ist nicht alt."),
    # two objects, two-way prepositions
    (
        says(the("man"), "give", recipient=the("child"), direct=a("apple")),
        "The man gives the child an apple.",
        "Der Mann gibt dem Kind einen Apfel.",
    ),
    (
        says(ME, "explain", recipient=SHE, direct=the("plan")),
        "I explain the plan to her.",
        "Ich erkläre ihr den Plan.",
    ),
    (
        says(the("book"), "lie", place=Adposition("on", "auf", Case.DATIVE, the("table"))),
        "The book lies on the table.",
        "Das Buch liegt auf dem Tisch.",
    ),
    (
        says(WE, "put", direct=the("book"), place=Adposition("on", "auf", Case.ACCUSATIVE, the("table"))),
        "We put the book on the table.",
        "Wir legen das Buch auf den Tisch.",
    ),
    # questions and commands
    (asks(the("boy"), "eat", direct=bare("meat")), "Does the boy eat meat?", "Isst der Junge Fleisch?"),
    (asks(WHO, "sing", front="subject"), "Who sings?", "Wer singt?"),
    (asks(ANNA, "help", front="recipient", recipient=WHO), "Who does Anna help?", "Wem hilft Anna?"),
    (asks(ANNA, "see", front="direct", direct=WHO), "Who does Anna see?", "Wen sieht Anna?"),
    (
        asks(YOU, "buy", front="direct", direct=WHAT, tense=Tense.PAST, time=YESTERDAY),
        "What did you buy yesterday?",
        "Was haben Sie gestern gekauft?",
    ),
    (
        asks(the("guest"), "wait.for", front="oblique", oblique=Adposition("for", "auf", Case.ACCUSATIVE, WHO)),
        "Who does the guest wait for?",
        "Auf wen wartet der Gast?",
    ),
    (
        asks(HE, "read", front="direct", direct=phrase(Determiner.WHICH, "letter")),
        "Which letter does he read?",
        "Welchen Brief liest er?",
    ),
    (
        says(YOU, "open", mood=Mood.COMMAND, direct=the("window")),
        "Please open the window.",
        "Bitte machen Sie das Fenster auf.",
    ),
    # subordinate clauses
    (
        Sentence(Clause(ME, VERB["sleep"]), CONJUNCTION["because"], Clause(ME, VERB["be"], attribute=is_("tired"))),
        "I sleep because I am tired.",
        "Ich schlafe, weil ich müde bin.",
    ),
    (
        Sentence(Clause(SHE, VERB["know"]), CONJUNCTION["that"], Clause(HE, VERB["get|up"])),
        "She knows that he gets up.",
        "Sie weiß, dass er aufsteht.",
    ),
    (
        Sentence(
            Clause(WE, VERB["stay"], place=inside("house")),
            CONJUNCTION["if"],
            Clause(Pronoun(Person.IT), VERB["rain"]),
            True,
        ),
        "If it rains, we stay in the house.",
        "Wenn es regnet, bleiben wir im Haus.",
    ),
    (
        Sentence(
            Clause(HE, VERB["ask.whether"]), CONJUNCTION["whether"], Clause(SHE, VERB["come|back"], tense=Tense.PERFECT)
        ),
        "He asks whether she has come back.",
        "Er fragt, ob sie zurückgekommen ist.",
    ),
    (
        Sentence(Clause(THEY, VERB["wait"]), CONJUNCTION["in order to"], Clause(THEY, VERB["pick|up"], direct=ME)),
        "They wait in order to pick me up.",
        "Sie warten, um mich abzuholen.",
    ),
    (
        Sentence(Clause(SHE, VERB["laugh"]), CONJUNCTION["but"], Clause(HE, VERB["cry"])),
        "She laughs, but he cries.",
        "Sie lacht, aber er weint.",
    ),
    # comparison and numbers
    (
        says(the("horse"), "be", attribute=is_("big", than=the("dog"))),
        "The horse is bigger than the dog.",
        "Das Pferd ist größer als der Hund.",
    ),
    (says(ANNA, "be", attribute=is_("old", than=HE, equal=True)), "Anna is as old as him.", "Anna ist so alt wie er."),
    (says(the("book"), "cost", direct=price(450)), "The book costs 4.50 euros.", "Das Buch kostet 4,50 Euro."),
    (
        says(
            HE, "arrive", tense=Tense.PAST, time=date(3, MAY, 2021), place=Adposition("in", "in", Case.DATIVE, BERLIN)
        ),
        "He arrived in Berlin on 3 May 2021.",
        "Er ist am 3. Mai 2021 in Berlin angekommen.",
    ),
    (
        says(the("train"), "depart", time=clock_time(3, 30)),
        "The train departs at half past three.",
        "Der Zug fährt um halb vier ab.",
    ),
]


@pytest.mark.parametrize(("sentence", "in_english", "in_german"), GOLDEN, ids=[row[1] for row in GOLDEN])
def test_a_structure_gives_the_expected_text_in_both_languages(
    sentence: Sentence, in_english: str, in_german: str
) -> None:
    assert english(sentence) == in_english
    assert german(sentence) == in_german


@pytest.mark.parametrize(
    ("declension", "rows"),
    [
        (
            "weak",
            ["gute gute gute guten", "guten gute gute guten", "guten guten guten guten", "guten guten guten guten"],
        ),
        (
            "mixed",
            ["guter gute gutes guten", "guten gute gutes guten", "guten guten guten guten", "guten guten guten guten"],
        ),
        (
            "strong",
            ["guter gute gutes gute", "guten gute gutes gute", "gutem guter gutem guten", "guten guter guten guter"],
        ),
    ],
)
def test_adjectives_are_declined_by_gender_case_and_article(declension: str, rows: list[str]) -> None:
    good = ADJECTIVE["good"]
    forms = [" ".join(decline_adjective(good, declension, case, column) for column in COLUMNS) for case in CASES]
    assert forms == rows


@pytest.mark.parametrize(
    ("noun", "singular", "plural"),
    [
        ("house", "Haus Haus Haus Hauses", "Häuser Häuser Häusern Häuser"),
        ("neighbour", "Nachbar Nachbarn Nachbarn Nachbarn", "Nachbarn Nachbarn Nachbarn Nachbarn"),
        ("woman", "Frau Frau Frau Frau", "Frauen Frauen Frauen Frauen"),
        ("car", "Auto Auto Auto Autos", "Autos Autos Autos Autos"),
    ],
)
def test_nouns_are_declined(noun: str, singular: str, plural: str) -> None:
    assert " ".join(decline_noun(NOUN[noun], case, False) for case in CASES) == singular
    assert " ".join(decline_noun(NOUN[noun], case, True) for case in CASES) == plural


def test_separable_and_prefixed_verbs_form_their_participles() -> None:
    verbs = ["open", "sell", "repair", "try|on", "work", "answer", "invite"]
    expected = ["aufgemacht", "verkauft", "repariert", "anprobiert", "gearbeitet", "geantwortet", "eingeladen"]
    assert [past_participle(VERB[key]) for key in verbs] == expected
    assert [infinitive(VERB[key], with_zu=True) for key in ("open", "read")] == ["aufzumachen", "zu lesen"]


def test_numbers_prices_and_times_follow_each_language() -> None:
    assert (number(3).de, number(17).de, number(1250)) == ("drei", "17", Phrase("1,250", "1.250"))
    assert clock_time(1, 0) == Phrase("at one o'clock", "um ein Uhr")
    assert clock_time(6, 45) == Phrase("at a quarter to seven", "um Viertel vor sieben")
    assert clock_time(7, 5) == Phrase("at 7:05", "um 7:05 Uhr")
    assert price(100) == Phrase("one euro", "einen Euro")
    assert price(1200) == Phrase("twelve euros", "zwölf Euro")


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return generate(50_000)


def test_a_corpus_has_the_requested_sizes(corpus: DemoCorpus) -> None:
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (50_000, 500, 500)
    small = generate(10, seed=3, valid=2, test=4)
    assert (len(small.train), len(small.valid), len(small.test)) == (10, 2, 4)


def test_no_english_sentence_occurs_twice(corpus: DemoCorpus) -> None:
    sources = [source for source, _ in corpus.train + corpus.valid + corpus.test]
    assert len(set(sources)) == len(sources)


def test_each_english_sentence_has_one_translation_for_all_seeds(corpus: DemoCorpus) -> None:
    translations = dict(corpus.train)
    other = generate(8_000, seed=2)
    shared = [(source, target) for source, target in other.train if source in translations]
    assert len(shared) > 100
    assert all(translations[source] == target for source, target in shared)


def test_sentences_are_short_and_clean(corpus: DemoCorpus) -> None:
    for pair in corpus.train[:5000] + corpus.test:
        for text in pair:
            assert 2 <= len(text.split()) <= 22
            assert text == " ".join(text.split())
            assert re.fullmatch(r"[A-ZÄÖÜ].*[.?]|\d.*[.?]", text), text


def test_every_word_of_the_lexicon_is_frequent_in_training(corpus: DemoCorpus) -> None:
    text = "\n".join(source.lower() for source, _ in corpus.train)
    counts = Counter(re.findall(r"[\w-]+", text))
    lemmas = {noun.en: {noun.en, noun_form(noun, plural=True)} for noun in NOUN.values()}
    lemmas |= {adjective: {adjective} for adjective in ADJECTIVE}
    for verb in VERB.values():
        forms = (verb.en, third_person(verb), past_form(verb), english_participle(verb))
        lemmas[verb.key] = {form.split()[0] for form in forms}
    assert {lemma for lemma, forms in lemmas.items() if sum(counts[form] for form in forms) < 30} == set()
    for section in LEXICON.phrases.values():
        assert {phrase.en for phrase in section if text.count(phrase.en.lower()) < 30} == set()


def test_held_out_combinations_occur_in_every_test_sentence_and_nowhere_else(corpus: DemoCorpus) -> None:
    """Generate the sentences again as structures, and look up their text in the splits."""
    held_out = held_out_combinations(LEXICON, seed=1)
    assert len(held_out) > 50
    training = {source for source, _ in corpus.train + corpus.valid}
    testing = {source for source, _ in corpus.test}
    generator = SentenceGenerator(LEXICON, random.Random(1))
    for _ in range(8_000):
        sentence = generator.sentence()
        source = english(sentence)
        assert source not in training or held_out.isdisjoint(combinations(sentence)), source
        assert source not in testing or not held_out.isdisjoint(combinations(sentence)), source


def test_held_out_adjectives_and_nouns_are_never_adjacent_in_training(corpus: DemoCorpus) -> None:
    # "clean" is left out, because it is also a verb: "They clean sofas".
    held_out = held_out_combinations(LEXICON, seed=1)
    adjectives = [(word, noun) for word, noun in held_out if word in ADJECTIVE and word not in VERB]
    pairs = {(word, form) for word, noun in adjectives for form in (noun, noun_form(NOUN[noun], plural=True))}
    seen: set[tuple[str, str]] = set()
    for source, _ in corpus.train + corpus.valid:
        words = re.findall(r"[\w-]+", source.lower())
        seen.update(pairwise(words))
    assert len(pairs) > 50
    assert pairs.isdisjoint(seen)


def test_every_held_out_word_occurs_in_training_in_other_combinations(corpus: DemoCorpus) -> None:
    words = set(re.findall(r"\w+", "\n".join(target for _, target in corpus.train)))
    unseen = {word for _, target in corpus.test for word in re.findall(r"[^\W\d]+", target)} - words
    assert len(unseen) <= 3, unseen


def test_another_seed_holds_out_other_combinations() -> None:
    assert held_out_combinations(LEXICON, 1) != held_out_combinations(LEXICON, 2)


def test_the_corpus_does_not_depend_on_the_hash_seed() -> None:
    program = "from dragoman.corpus.demo import generate; print(ascii(generate(500, seed=7)))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ascii(generate(500, seed=7))

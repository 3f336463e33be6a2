import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus import cleaning
from dragoman.corpus.cleaning import Cleaner, RuleCount
from dragoman.corpus.pair_filter import PairFilter
from dragoman.corpus.sources import Languages
from dragoman.corpus.text_normalization import limit_combining_marks
from dragoman.corpus.writing_systems import script_of
from dragoman.settings import ALL_RULES, DEFAULT_RULES, CleaningSettings

EN_DE = Languages("en", "de")


def clean(source: str | bytes, target: str | bytes, languages: Languages = EN_DE, **changes):
    cleaner = Cleaner(CleaningSettings(**changes), languages)
    sides = [side.encode() if isinstance(side, str) else side for side in (source, target)]
    result = cleaner.clean(*sides)
    return result, {rule: count.pairs for rule, count in cleaner.counts.items() if count.pairs}


def test_a_good_pair_is_not_changed():
    assert clean("The house is old.", "Das Haus ist alt.") == (("The house is old.", "Das Haus ist alt."), {})


@pytest.mark.parametrize(
    ("rule", "source", "target"),
    [
        ("invalid_utf8", b"caf\xe9", "Café"),
        ("mojibake", "The cafÃ© is closed.", "Das Café ist zu."),
        ("mojibake", "It\u2019s fine.", "Es ist sch\u00c3\u00b6n."),
        ("mojibake", "A \ufffd mark.", "Ein Zeichen."),
        ("empty", "", "Leer."),
        ("empty", "Empty.", " \t "),
        ("empty", "Empty.", "\u200b"),
        ("words", "word " * 81, "Wort " * 80),
        ("ratio", "Yes.", "Ja, und zwar aus den Gründen, die ich Ihnen vorhin schon ausführlich dargelegt habe."),
        ("identical", "www.example.org", "www.example.org"),
        ("script", "Here is the text.", "Вот этот текст."),
        ("script", "这是一段文字", "Das ist ein Text."),
        ("copied", "Read our terms and conditions.", "READ our Terms and conditions"),
        ("copied", "Große Häuser — alte Bäume – «viele» Wörter", "Große Häuser, alte Bäume; viele Wörter"),
        ("copied", "Go away!", "Go Away."),
        ("copied", "Please wait for the next train.", "PLEASE WAIT FOR THE NEXT TRAIN!"),
        ("truncated", "The old house stands beside the river.", "Das alte Haus steht"),
        ("truncated", "Where is the old", "„Wo ist denn eigentlich das alte Haus?“"),
        ("repetition", "The house is very old today.", "Das Haus ist sehr sehr sehr sehr sehr alt."),
        ("repetition", "Home Products Contact Home Products Contact Home Products Contact", "Start Produkte Kontakt"),
        ("repetition", "We went to the market.", "Wir gingen auf den Markt auf den Markt auf den Markt auf den Markt."),
        ("language", "The ship leaves the harbour.", "The weather was fine in the morning."),
        ("language", "Nous sommes arrivés hier soir.", "Wir sind gestern Abend angekommen."),
    ],
)
def test_each_filtering_rule_drops_its_pair_and_counts_it(rule, source, target):
    result, counts = clean(source, target, rules=ALL_RULES)
    assert result is None
    assert counts[rule] == 1
    assert sum(counts.get(name, 0) for name in ALL_RULES if name not in ("control_characters", "normal_form")) == 1


@pytest.mark.parametrize(
    "rule",
    [
        "mojibake",
        "words",
        "ratio",
        "identical",
        "script",
        "empty",
        "invalid_utf8",
        "truncated",
        "copied",
        "repetition",
        "language",
    ],
)
def test_a_disabled_rule_drops_nothing(rule):
    pairs = {
        "mojibake": ("cafÃ© here", "Café hier"),
        "words": (" ".join(f"{i}" for i in range(90)), " ".join(f"n{i}" for i in range(90))),
        "ratio": ("Yes.", "Ja, und zwar aus den Gründen, die ich Ihnen vorhin schon ausführlich dargelegt habe."),
        "identical": ("Berlin", "Berlin"),
        "script": ("Here it is.", "Вот этот"),
        "empty": ("", "Leer"),
        "invalid_utf8": (b"caf\xe9 au lait", "Milchkaffee"),
        "truncated": ("The old house stands beside the river.", "Das alte Haus steht"),
        "copied": ("Read our terms today.", "Read our terms Today"),
        "repetition": ("Very, very, very, very, very old.", "Sehr, sehr, sehr, sehr, sehr alt."),
        "language": ("The ship leaves the harbour.", "The weather was fine in the morning."),
    }
    others = tuple(name for name in DEFAULT_RULES if name not in (rule, "mojibake"))
    assert clean(*pairs[rule], rules=others)[0] is not None


def test_control_characters_are_removed_and_counted():
    result, counts = clean("A\u200b house\x07.", "Ein\ufeff Haus.")
    assert result == ("A house.", "Ein Haus.")
    assert counts == {"control_characters": 1}


def test_text_is_brought_into_normal_form():
    result, counts = clean("Zoe\u0308 speaks.", "Zoe\u0308 spricht.")
    assert result == ("Zo\u00eb speaks.", "Zo\u00eb spricht.")
    assert counts == {"normal_form": 1}


def test_whitespace_of_every_kind_is_collapsed():
    assert clean("  a\u00a0 b\u2028c\td ", "w x\u3000y z")[0] == ("a b c d", "w x y z")


def test_word_limits_apply_to_both_sides_and_are_inclusive():
    source, target = ([f"{letter}{number}" for number in range(81)] for letter in "ab")
    assert clean(" ".join(source[:80]), " ".join(target[:80]))[0] is not None
    assert clean(" ".join(source[:80]), " ".join(target))[0] is None
    assert clean("one", "eins zwei", min_words=2)[0] is None


def test_a_few_letters_of_another_script_are_allowed():
    assert clean("The letter Ж is Cyrillic.", "Der Buchstabe Ж ist kyrillisch.")[0] is not None


def test_a_language_with_an_unknown_script_is_not_checked():
    assert script_of("tlh") is None
    assert clean("Here is the text.", "Вот этот текст.", Languages("en", "tlh"))[0] is not None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Kosovo!", "Nein!"),
        ("Question No 18 by Manuel Medina Ortega (H-0443/99):", "Anfrage Nr. 18 von Manuel Medina Ortega (H-0443/99):"),
        ("No, no, no, never!", "Nein, nein, nein, niemals!"),
        (
            "I felt that two months were too long; I felt that one month was too long; I felt that a week was better.",
            "Ich fand zwei Monate zu lang; ich fand einen Monat zu lang; ich fand eine Woche besser.",
        ),
        ("Tom adores me.", "Tom maulte."),
    ],
)
def test_names_and_rhetoric_are_kept_by_all_rules(source, target):
    assert clean(source, target, rules=ALL_RULES)[0] == (source, target)


def test_a_language_that_the_detector_does_not_know_is_not_checked():
    assert clean("The ship leaves the harbour.", "Qapla' batlh je, SuvwI'", Languages("en", "tlh"), rules=["language"])[
        0
    ]


def test_characters_of_syllabic_and_word_scripts_count_as_two_letters():
    source = "The committee will decide on the proposal in the course of next week, as was agreed."
    assert clean(source, "委员会将按约定于下周内就该提案作出决定。", Languages("en", "zh"))[0] is not None
    assert clean(source, "Es wird entschieden.")[1] == {"ratio": 1}


def test_text_without_spaces_repeats_itself_by_characters():
    languages = Languages("en", "ja")
    assert clean("It is raining very hard today.", "今日は雨が" + "とても" * 5 + "降っている", languages)[1] == {
        "repetition": 1
    }
    assert clean("It is raining very hard today.", "今日はとても激しい雨が降っていますね。", languages)[0] is not None


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("The old house stands", "Das alte Haus steht neben dem großen Fluss", EN_DE),  # Titles have no full stop.
        ("The house is very old.", "Das Haus ist sehr sehr alt", EN_DE),
        ("This old house stands by the river.", "Ein Haus am Fluss.", EN_DE),
        ("The old house stands beside the river.", "房子在河边", Languages("en", "zh")),
        ("The old house stands beside the river.", "บ้านอยู่ริมแม่น้ำ", Languages("en", "th")),
        ("The old house stands beside the river.", "Das alte Haus steht", Languages("en", "xx")),
    ],
)
def test_sides_of_similar_length_or_with_equal_ends_are_not_truncated(source, target, languages):
    assert PairFilter(CleaningSettings(rules=("truncated",)), languages)(source, target) is None


def test_the_filter_of_pairs_names_the_rule():
    keep = PairFilter(CleaningSettings(), EN_DE)
    assert keep("The house is old.", "Das Haus ist alt.") is None
    assert keep("Berlin", "Berlin") == "identical"


def test_rules_may_be_given_as_changes_of_the_default():
    assert CleaningSettings(rules="+language,-script").rules == (
        *(rule for rule in DEFAULT_RULES if rule != "script"), "language",
    )  # fmt: skip
    assert CleaningSettings(rules="empty, words").rules == ("empty", "words")
    for wrong in ("+spelling", "-spelling", "empty,+language"):
        with pytest.raises(ValueError, match="rules"):
            CleaningSettings(rules=wrong)


def test_a_region_does_not_change_the_script():
    assert script_of("pt-BR") == script_of("pt")


@given(st.text(), st.text())
def test_cleaning_a_cleaned_pair_changes_nothing(source, target):
    result, _ = clean(source.encode(errors="replace"), target.encode(errors="replace"))
    if result is not None:
        again, counts = clean(*result)
        assert again == result
        assert counts == {}
        assert all("\n" not in side and "\t" not in side and side == side.strip() for side in result)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_cleaned_or_dropped_without_an_exception(source, target):
    clean(source, target)


def test_rule_counts_keep_a_few_short_samples():
    count = RuleCount()
    for number in range(10):
        count.add(f"{number} " + "x" * 500, "y")
    assert count.pairs == 10
    assert [sample[0][0] for sample in count.samples] == ["0", "1", "2"]
    assert all(len(side) <= cleaning.SAMPLE_CHARACTERS for sample in count.samples for side in sample)


def test_runs_of_combining_marks_are_limited_as_in_stream_safe_text():
    letter = "e\u0301\u0316"
    assert limit_combining_marks(letter) == letter
    assert limit_combining_marks("e" + "\u0301" * 30) == "e" + "\u0301" * 30
    assert limit_combining_marks("e" + "\u0301" * 61) == "e" + ("\u0301" * 30 + "\u034f") * 2 + "\u0301"

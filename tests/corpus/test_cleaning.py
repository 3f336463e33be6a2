import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus import cleaning
from dragoman.corpus.cleaning import Cleaner, RuleCount, script_of
from dragoman.corpus.sources import Languages
from dragoman.settings import ALL_RULES, CleaningSettings

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
    ],
)
def test_each_filtering_rule_drops_its_pair_and_counts_it(rule, source, target):
    result, counts = clean(source, target)
    assert result is None
    assert counts[rule] == 1
    assert sum(counts.get(name, 0) for name in ALL_RULES if name not in ("control_characters", "normal_form")) == 1


@pytest.mark.parametrize("rule", ["mojibake", "words", "ratio", "identical", "script", "empty", "invalid_utf8"])
def test_a_disabled_rule_drops_nothing(rule):
    pairs = {
        "mojibake": ("cafÃ© here", "Café hier"),
        "words": ("word " * 90, "Wort " * 90),
        "ratio": ("Yes.", "Ja " * 40),
        "identical": ("Berlin", "Berlin"),
        "script": ("Here it is.", "Вот этот"),
        "empty": ("", "Leer"),
        "invalid_utf8": (b"caf\xe9 au lait", "Milchkaffee"),
    }
    others = tuple(name for name in ALL_RULES if name not in (rule, "mojibake"))
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
    assert clean("a " * 80, "b " * 80)[0] is not None
    assert clean("a " * 80, "b " * 81)[0] is None
    assert clean("one", "eins zwei", min_words=2)[0] is None


def test_a_few_letters_of_another_script_are_allowed():
    assert clean("The letter Ж is Cyrillic.", "Der Buchstabe Ж ist kyrillisch.")[0] is not None


def test_a_language_with_an_unknown_script_is_not_checked():
    assert script_of("tlh") is None
    assert clean("Here is the text.", "Вот этот текст.", Languages("en", "tlh"))[0] is not None


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
    assert cleaning.limit_combining_marks(letter) == letter
    assert cleaning.limit_combining_marks("e" + "\u0301" * 30) == "e" + "\u0301" * 30
    assert cleaning.limit_combining_marks("e" + "\u0301" * 61) == "e" + ("\u0301" * 30 + "\u034f") * 2 + "\u0301"

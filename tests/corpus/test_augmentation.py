import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus import augmentation
from dragoman.corpus.augmentation import augment
from dragoman.corpus.block_tasks import as_line
from dragoman.corpus.cleaning import Cleaner
from dragoman.corpus.deduplication import hash_line, hashes_from
from dragoman.corpus.sources import Languages
from dragoman.settings import AUGMENTATIONS, AugmentationSettings, CleaningSettings

EN_DE = Languages("en", "de")
ALL = AugmentationSettings(**dict.fromkeys(AUGMENTATIONS, 1.0))
PAIR = ("The strasse is long, isn't it?", "Die Straße ist lang, nicht wahr?")


def copies_of(pairs, settings=ALL, languages=EN_DE, seed=1):
    hashes = hashes_from(b"".join(hash_line(as_line(*pair)) for pair in pairs))
    return [(copy.position, copy.change, copy.pair) for copy in augment(pairs, hashes, settings, languages, seed)]


def change(name, pair=PAIR, languages=EN_DE):
    return getattr(augmentation, name)(pair, languages, random.Random(3))


def test_upper_case_changes_both_sides():
    assert change("upper_case") == ("THE STRASSE IS LONG, ISN'T IT?", "DIE STRASSE IST LANG, NICHT WAHR?")


def test_title_case_changes_the_first_letter_of_each_word_only():
    assert change("title_case", ('"don\'t" (say so) 3rd', "sag (das) nicht")) == (
        '"Don\'t" (Say So) 3rd', "Sag (Das) Nicht",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["upper_case", "title_case"])
def test_turkish_keeps_its_two_letters_i(name):
    source, target = change(name, ("it is", "iyi ılık"), Languages("en-GB", "tr"))
    assert (source[0], target[0]) == ("I", "İ")
    assert target.split()[1][0] == "I"


def test_typos_change_few_letters_of_the_source_alone():
    source = "Several people were waiting patiently outside the large building yesterday evening after sunset"
    changed, target = change("typos", (source, "Ziel"))
    differing = [(old, new) for old, new in zip(source.split(), changed.split(), strict=True) if old != new]
    assert 1 <= len(differing) <= 5
    assert all(abs(len(old) - len(new)) <= 1 for old, new in differing)
    assert target == "Ziel"


def test_addresses_numbers_and_short_words_get_no_typos():
    pair = ("go to tom99@example.org or on x.org/a_b if 12345 is up", "Ziel")
    assert change("typos", pair) == pair


def test_typos_are_those_of_a_hand_on_a_keyboard():
    made = {augmentation.typos(("Wort", "Ziel"), EN_DE, random.Random(seed))[0] for seed in range(500)}
    assert {"Wrot", "Wot", "Wor", "Wortt", "Wirt", "Wprt", "Worg", "Wortr", "oWrt", "Qort"} <= made
    assert all(3 <= len(word) <= 5 for word in made)
    assert not any("x" in word for word in made)  # Its key is beside none of these.
    cyrillic = {augmentation.typos(("дом", "Ziel"), EN_DE, random.Random(seed))[0] for seed in range(300)}
    assert {"длм", "дм", "доом"} <= cyrillic


def test_some_texts_have_few_typos_and_some_have_many():
    text = "several people were waiting outside and a few had left already"
    changed = [augmentation.typos((text, "Ziel"), EN_DE, random.Random(seed))[0] for seed in range(60)]
    counts = {sum(word not in copy.split() for word in text.split()) for copy in changed}
    assert {2, 3, 4} <= counts
    assert any(copy.count(" ") < text.count(" ") for copy in changed)  # A space was left out.


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("Go home.", "Geh heim!"), ("Go home", "Geh heim")),
        (("Really?!", "Wirklich ?"), ("Really", "Wirklich")),
        (("Go home.", "Geh heim"), ("Go home.", "Geh heim")),
        (("...", "…"), ("...", "…")),
    ],
)
def test_end_punctuation_is_removed_where_both_sides_have_some(pair, expected):
    assert change("no_end_punctuation", pair) == expected


def test_inline_noise_is_the_same_on_both_sides():
    source, target = change("inline_noise")
    noise = source.replace(PAIR[0], "")
    assert noise.strip() in augmentation.INLINE_NOISE
    assert target.replace(PAIR[1], "") == noise


def test_shares_are_those_of_the_settings_and_the_seed_chooses_the_pairs():
    pairs = [(f"This is sentence number {number}.", f"Das ist Satz Nummer {number}.") for number in range(4000)]
    found = copies_of(pairs, AugmentationSettings(upper_case=0.1, typos=0.3))
    assert {name for _, name, _ in found} == {"upper_case", "typos"}
    assert 340 < sum(name == "upper_case" for _, name, _ in found) < 460
    assert 1080 < sum(name == "typos" for _, name, _ in found) < 1320
    assert found != copies_of(pairs, AugmentationSettings(upper_case=0.1, typos=0.3), seed=2)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5), st.sampled_from(["en", "tr", "el", "zh"]))
def test_copies_of_any_text_are_clean_lines_that_depend_on_their_pair_alone(texts, language):
    languages = Languages("en", language)
    cleaner = Cleaner(CleaningSettings(rules=("empty", "control_characters", "normal_form")), languages)
    pairs = list(dict.fromkeys(filter(None, (cleaner.clean(*(side.encode() for side in pair)) for pair in texts))))
    if not pairs:
        return
    found = copies_of(pairs, languages=languages)
    assert found == copies_of(pairs, languages=languages)
    assert copies_of(pairs, AugmentationSettings()) == []
    for position, name, copy in found:
        assert copy != pairs[position]
        assert (0, name, copy) in copies_of([pairs[position]], languages=languages)
        assert all(side == " ".join(side.split()) and side for side in copy)
        assert all(unicodedata.is_normalized("NFC", side) for side in copy)

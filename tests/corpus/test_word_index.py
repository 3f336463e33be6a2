import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.tokenizer import count_words
from dragoman.corpus.word_index import SIDE_END, WordIndex

SIDES = st.text(st.characters(codec="utf-8")).map(lambda text: " ".join(text.split()))
PAIRS = st.lists(st.tuples(SIDES, SIDES, st.booleans()))


def index(pairs) -> WordIndex:
    return WordIndex.from_text("\n".join(f"{source}\t{target}" for source, target, *_ in pairs).encode())


@given(PAIRS)
def test_the_numbers_give_the_words_of_all_sides_in_order(pairs):
    indexed = index(pairs)
    words = [indexed.words[number] for number in indexed.numbers.tolist()]
    expected = [side.encode().split(b" ") for source, target, _ in pairs for side in (source, target)]
    # One pair with two empty sides is a tab; no pair at all is no text.
    assert words == [word for side in expected for word in (*side, SIDE_END)]
    assert len(set(indexed.words)) == len(indexed.words)


@given(PAIRS)
def test_counts_are_those_of_the_selected_pairs(pairs):
    counts = index(pairs).count(np.array([is_selected for *_, is_selected in pairs], np.bool_))
    selected = [side for source, target, is_selected in pairs if is_selected for side in (source, target)]
    expected = count_words(selected) if selected else {}
    assert {word.decode(): count for word, count in counts.items()} == expected


def test_no_text_has_no_words():
    indexed = WordIndex.from_text(b"")
    assert indexed.words == [SIDE_END]
    assert indexed.count(np.zeros(0, np.bool_)) == {}

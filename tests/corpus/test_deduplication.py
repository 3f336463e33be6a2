import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus import deduplication
from dragoman.corpus.deduplication import hash_line, hashes_from, mark_duplicates

blocks_of_words = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=6)


@given(blocks_of_words, st.integers(1, 5))
def test_all_but_the_first_of_equal_pairs_are_marked_for_any_number_of_partitions(blocks, partition_pairs):
    hashes = [hashes_from(b"".join(hash_line(word.encode()) for word in block)) for block in blocks]
    default, deduplication.PARTITION_PAIRS = deduplication.PARTITION_PAIRS, partition_pairs
    try:
        marked = mark_duplicates([len(block) for block in blocks], hashes.__getitem__)
    finally:
        deduplication.PARTITION_PAIRS = default
    words = [word for block in blocks for word in block]
    assert marked.tolist() == [word in words[:position] for position, word in enumerate(words)]


def test_no_blocks_give_an_empty_mask():
    assert mark_duplicates([], lambda block: np.empty((0, 2), np.uint64)).size == 0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.shards import Pairs, gather_pairs, write_shard
from dragoman.errors import DragomanError

UINT16 = np.dtype(np.uint16)


def write_pairs(folder, index, sentences):
    tokens = np.array([token for pair in sentences for side in pair for token in side], np.uint16)
    lengths = np.array([[len(side) for side in pair] for pair in sentences], np.int32).reshape(-1, 2)
    write_shard(folder, index, [tokens], lengths)


side = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=6)
pairs_of_tokens = st.lists(st.tuples(side, side), max_size=8)


@given(st.lists(pairs_of_tokens, min_size=1, max_size=3))
def test_pairs_are_read_as_written(tmp_path_factory, shards):
    folder = tmp_path_factory.mktemp("shards")
    written = [pair for shard in shards for pair in shard]
    if not any(shards):
        return
    for index, shard in enumerate(filter(None, shards)):
        write_pairs(folder, index, shard)
    pairs = Pairs.open(folder, UINT16)
    assert len(pairs) == len(written)
    assert [tuple(side.tolist() for side in pairs[i]) for i in range(len(pairs))] == written
    assert pairs.lengths().tolist() == [[len(source), len(target)] for source, target in written]
    order = list(reversed(range(len(pairs))))
    for side, gathered in enumerate(pairs.gather(np.array(order))):
        assert gathered.tolist() == [token for i in order for token in written[i][side]]


@given(pairs_of_tokens.filter(bool), st.randoms())
def test_gathering_permutes_whole_pairs(sentences, random):
    tokens = np.array([token for pair in sentences for side in pair for token in side], np.uint16)
    lengths = np.array([[len(side) for side in pair] for pair in sentences], np.int32)
    order = list(range(len(sentences)))
    random.shuffle(order)
    gathered = np.concatenate(list(gather_pairs(tokens, lengths, np.array(order))))
    assert gathered.tolist() == [token for i in order for side in sentences[i] for token in side]


def test_an_empty_folder_is_reported_with_a_remedy(tmp_path):
    with pytest.raises(DragomanError, match="no shards: prepare"):
        Pairs.open(tmp_path, UINT16)


@pytest.mark.parametrize("suffix", ["tokens", "offsets"])
def test_truncated_files_are_reported(tmp_path, suffix):
    write_pairs(tmp_path, 0, [([1, 3], [2]), ([4], [5, 6])])
    file = tmp_path / f"00000.{suffix}"
    file.write_bytes(file.read_bytes()[: -8 if suffix == "offsets" else -2])
    with pytest.raises(DragomanError, match=r"00000\.\* are truncated: prepare"):
        Pairs.open(tmp_path, UINT16)


def test_a_missing_token_file_is_reported(tmp_path):
    write_pairs(tmp_path, 0, [([1], [2])])
    (tmp_path / "00000.tokens").unlink()
    with pytest.raises(DragomanError, match=r"damaged .*00000.tokens"):
        Pairs.open(tmp_path, UINT16)

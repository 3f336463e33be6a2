"""Mixtures of data sets: each pair as often as its weight says, and one message with all reasons against mixing."""

import hashlib
import math
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.corpus.data_mixture import MixedDataSet, MixedPairs, WeightedPath, open_data, parse_data, parse_parts
from dragoman.corpus.dataset import MANIFEST_FILE, DataSet
from dragoman.corpus.shards import Pairs
from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json

weights = st.decimals(Decimal("0.05"), 4, places=2)
data_sets = st.lists(st.tuples(st.integers(20, 90), weights), min_size=1, max_size=4)


def make_pairs(count: int) -> Pairs:
    """Pairs of a token each; the tokens are the numbers of the pairs."""
    return Pairs.in_memory(np.arange(2 * count, dtype=np.uint16), np.ones((count, 2), np.int32))


def mix(parts: list[tuple[int, Decimal]]) -> MixedPairs:
    return MixedPairs([make_pairs(size) for size, _ in parts], [weight for _, weight in parts])


@given(data_sets, st.integers(1, 12), st.integers(0, 9))
def test_each_pair_is_used_as_often_as_its_weight_says_and_none_twice_before_all_others_once(parts, epochs, seed):
    pairs = mix(parts)
    used = Counter(np.concatenate([pairs.of_epoch(epoch, seed) for epoch in range(epochs)]).tolist())
    first = 0
    for size, weight in parts:
        counts = [used[first + pair] for pair in range(size)]
        assert sum(counts) == int(epochs * weight * size)
        assert max(counts) - min(counts) <= 1
        first += size
    assert max(used) < first


@given(data_sets, st.integers(0, 50), st.integers(0, 9))
def test_the_pairs_of_an_epoch_do_not_depend_on_what_was_asked_before(parts, epoch, seed):
    pairs = mix(parts)
    for earlier in range(3):
        pairs.of_epoch(earlier, seed)
    assert pairs.of_epoch(epoch, seed).tolist() == mix(parts).of_epoch(epoch, seed).tolist()


@given(st.integers(20, 90), st.decimals(Decimal("0.02"), 1, places=2), weights, st.integers(0, 9))
def test_a_part_uses_the_same_pairs_in_all_epochs_and_larger_parts_contain_smaller_ones(size, part, weight, seed):
    def used(part: Decimal) -> set[int]:
        pairs = MixedPairs([make_pairs(size)], [weight], [part])
        return set(np.concatenate([pairs.of_epoch(epoch, seed) for epoch in range(60)]).tolist())

    assert len(used(part)) == math.ceil(part * size)
    assert used(part / 2) <= used(part)


def test_the_pairs_of_an_epoch_stay_the_same_in_every_version():
    """A run resumes at a position of the plan, so another version must choose the same pairs."""
    chosen = mix([(300, Decimal(1)), (1000, Decimal("0.3")), (50, Decimal("2.5"))]).of_epoch(2, seed=3)
    assert hashlib.sha256(chosen.astype("<i8").tobytes()).hexdigest()[:16] == "56e1790707e31f1d"


def test_epochs_and_seeds_choose_other_pairs():
    pairs = mix([(1000, Decimal("0.3"))])
    first, second, third = (set(pairs.of_epoch(epoch, 1).tolist()) for epoch in range(3))
    assert not first & second | second & third | first & third
    assert first != set(pairs.of_epoch(0, 2).tolist())


@pytest.mark.parametrize(
    ("argument", "path", "weight"),
    [
        ("old", "old", 1),
        ("old@0.3", "old", Decimal("0.3")),
        ("a/b@c@2", "a/b@c", 2),
        ("old@.50", "old", Decimal("0.5")),
        ("old@10", "old", 10),
        ("me@home", "me@home", 1),
        ("host@1/data", "host@1/data", 1),
        ("a#b", "a#b", 1),
    ],
)
def test_a_weight_is_a_number_after_the_last_at(argument, path, weight):
    parsed = parse_data(argument)
    assert parsed == WeightedPath(Path(path), Decimal(weight))
    assert parse_data(str(parsed)) == parsed


@pytest.mark.parametrize("weight", ["1001", "1000000", "99999999999999999999", "1000.01"])
def test_a_weight_whose_epoch_would_fill_the_memory_is_refused(weight):
    assert parse_data("old@1000").weight == 1000
    with pytest.raises(DragomanError, match="the weight is above 1,000: write for example @3"):
        parse_data(f"old#0.5@{weight}")


@pytest.mark.parametrize(
    ("argument", "part", "weight"),
    [("new#0.1", "0.1", 1), ("new#.25@3", "0.25", 3), ("new#1", "1", 1)],
)
def test_a_part_is_a_number_after_a_hash(argument, part, weight):
    parsed = parse_data(argument)
    assert parsed == WeightedPath(Path("new"), Decimal(weight), Decimal(part))
    assert parse_data(str(parsed)) == parsed


@pytest.mark.parametrize("argument", ["new#0", "new#1.5", "new#3@0.5"])
def test_a_part_that_is_none_or_more_than_all_is_refused(argument):
    with pytest.raises(DragomanError, match="the part is not above 0 and at most 1"):
        parse_data(argument)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0, -0.1, 1.01, 2, 0.33])
def test_each_part_of_a_learning_curve_is_above_0_at_most_1_and_there_once(wrong):
    assert parse_parts([1, 0.33, 0.1]) == [Decimal("0.1"), Decimal("0.33"), 1]
    for parts in ([0.1, 0.33, wrong], []):
        with pytest.raises(DragomanError, match="each must be above 0 and at most 1, and given once"):
            parse_parts(parts)


def test_an_existing_folder_is_preferred_to_a_weight(tmp_path):
    (tmp_path / "old@2").mkdir()
    assert parse_data(tmp_path / "old@2") == WeightedPath(tmp_path / "old@2")


def test_a_weight_of_zero_is_refused():
    with pytest.raises(DragomanError, match=r"--data old@0.0: the weight is not above 0"):
        parse_data("old@0.0")


def test_a_single_data_set_is_itself(data):
    for argument in (data.path, str(data.path), [data.path], f"{data.path}@1.0"):
        opened = open_data(argument)
        assert type(opened) is DataSet
        assert opened.manifest == data.manifest
        assert opened.pairs("train").of_epoch(0, 1) is None


def test_a_mixture_has_all_pairs_and_the_validation_set_of_the_first(data, old_data):
    mixed = open_data([data.path, f"{old_data.path}@0.5"])
    pairs, new, old = (each.pairs("train") for each in (mixed, data, old_data))
    assert len(pairs) == len(new) + len(old)
    assert pairs.lengths().tolist() == [*new.lengths().tolist(), *old.lengths().tolist()]
    chosen = np.array([3, len(new) + 4, 0, len(new)])
    expected = [new[3], old[4], new[0], old[0]]
    for side, tokens in enumerate(pairs.gather(chosen)):
        assert tokens.tolist() == np.concatenate([pair[side] for pair in expected]).tolist()
    assert mixed.text("valid") == data.text("valid")
    assert len(mixed.pairs("valid")) == len(data.pairs("valid"))
    assert mixed.manifest.splits["train"].pairs == len(new) + round(len(old) / 2)
    assert mixed.manifest.name == "demo + demo@0.5"


def test_the_identity_covers_all_data_sets_their_order_and_weights(data, old_data):
    new, old = str(data.path), str(old_data.path)
    mixtures = [[new, old], [old, new], [new, f"{old}@0.3"], [new, f"{old}@0.4"], [new, new], [f"{new}@2"]]
    identities = {open_data(mixture).manifest.identity for mixture in mixtures}
    assert len(identities | {data.manifest.identity, old_data.manifest.identity}) == 8
    assert open_data([new, f"{old}@.30"]).manifest.identity in identities


@given(st.decimals(Decimal("0.0001"), 1, places=4), st.decimals(1, 3, places=2))
@example(Decimal("0.0001"), Decimal(1))
def test_the_manifest_counts_the_pairs_that_are_used(data, part, weight):
    mixed = MixedDataSet([WeightedPath(data.path, weight, part)])
    counted = mixed.manifest.splits["train"].pairs
    average = sum(len(mixed.pairs("train").of_epoch(epoch, 1)) for epoch in range(50)) / 50
    assert abs(counted - average) < 1
    assert counted >= 1


def test_the_arguments_of_a_data_set_open_it_from_any_folder(data, old_data, monkeypatch, tmp_path):
    monkeypatch.chdir(data.path.parent)
    opened = [open_data(data.path.name), open_data([data.path.name, f"{old_data.path}@0.30"])]
    arguments = [each.arguments for each in opened]
    monkeypatch.chdir(tmp_path)
    assert [open_data(each).manifest for each in arguments] == [each.manifest for each in opened]


def copy_with(data: DataSet, folder: Path, **changes) -> Path:
    """A copy of the manifest of a data set with changes."""
    folder.mkdir()
    write_json(folder / MANIFEST_FILE, {**read_json(data.path / MANIFEST_FILE), **changes})
    return folder


def test_all_reasons_against_a_mixture_are_in_one_message(data, tmp_path):
    files = read_json(data.path / MANIFEST_FILE)["files"]
    other = copy_with(
        data, tmp_path / "other",
        languages={"source": "de", "target": "fr"},
        files={**files, "tokenizer.model": {**files["tokenizer.model"], "sha256": "0"}},
    )  # fmt: skip
    with pytest.raises(DragomanError) as error:
        open_data([str(data.path), str(other), str(tmp_path / "none"), f"{data.path}@0.0001"])
    first, *reasons = str(error.value).splitlines()
    assert first == "The data cannot be mixed, and nothing was written:"
    assert [reason.strip() for reason in reasons] == [
        f"{other} is de-fr, {data.path} is en-de: mix data sets of one direction.",
        f"{other} and {data.path} have different tokenizers: prepare {other} again with `dragoman prepare ... "
        f"--tokenizer {data.path / 'tokenizer.model'}`.",
        f"{tmp_path / 'none'} is not a prepared data set: create one with `dragoman prepare ... --out DATA`.",
        f"{data.path}@0.0001 uses none of its {len(data.pairs('train')):,} pairs in an epoch: raise its weight.",
    ]


def test_a_mixture_needs_the_validation_set_of_the_first_data_set_alone(data, old_data, tmp_path):
    copy = shutil.copytree(old_data.path, tmp_path / "copy")
    manifest = read_json(copy / MANIFEST_FILE)
    (copy / MANIFEST_FILE).unlink()
    write_json(copy / MANIFEST_FILE, {**manifest, "splits": {"train": manifest["splits"]["train"]}})
    assert len(open_data([data.path, copy]).pairs("valid")) == 60
    with pytest.raises(DragomanError, match="has no valid set"):
        open_data([copy, data.path])

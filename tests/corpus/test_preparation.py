"""Preparation of a data set: exact, resumable and atomic."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragoman.corpus import block_tasks, demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet, Manifest
from dragoman.corpus.dropped_pairs import augmented_copies, dropped_by_rule
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.errors import CorpusError, DragomanError
from dragoman.files import locked
from dragoman.recipe import resolve
from dragoman.settings import Settings

EN_DE = Languages("en", "de")
SETTINGS = resolve(None, ["tokenizer.vocabulary_size=500", "corpus.valid_pairs=50", "corpus.test_pairs=20"]).settings
PAIRS = demo.generate(2500, seed=3, valid=40, test=1)


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Source:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return Source(path.stem, (path,), "tsv")


def corpus_of(*train: Source, valid: tuple[Source, ...] = (), test: tuple[Source, ...] = ()) -> Corpus:
    return Corpus("corpus", EN_DE, train, valid, test)


def make(corpus: Corpus, out: Path, settings: Settings = SETTINGS, workers: int = 1, **options: object) -> DataSet:
    prepare(corpus, out, settings, workers=workers, **options)  # type: ignore[arg-type]
    return DataSet(out)


def digest_of(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def decoded(data: DataSet, split: str) -> list[tuple[str, str]]:
    pairs = data.pairs(split)  # type: ignore[arg-type]
    return [tuple(data.tokenizer.decode(side) for side in pairs[i]) for i in range(len(pairs))]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Source:
    return write_tsv(tmp_path_factory.mktemp("text") / "train.tsv", PAIRS.train)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("dragoman.corpus.preparation.BLOCK_PAIRS", 300)
    monkeypatch.setattr("dragoman.corpus.preparation.SHARD_PAIRS", 1000)


def test_every_pair_is_in_exactly_one_split(source, tmp_path):
    data = make(corpus_of(source), tmp_path / "data")
    pairs = [pair for split in ("train", "valid", "test") for pair in decoded(data, split)]
    assert sorted(pairs) == sorted(PAIRS.train)
    assert {split: counts.pairs for split, counts in data.manifest.splits.items()} == {
        "train": 2430, "valid": 50, "test": 20,
    }  # fmt: skip


def test_the_text_of_a_held_out_set_matches_its_tokens(source, tmp_path):
    data = make(corpus_of(source), tmp_path / "data")
    assert list(zip(*data.text("valid"), strict=True)) == decoded(data, "valid")


def test_pairs_that_a_model_wrote_are_not_held_out_beside_real_ones(tmp_path):
    real = write_tsv(tmp_path / "real.tsv", PAIRS.train[:1000])
    synthetic = replace(write_tsv(tmp_path / "synthetic.tsv", PAIRS.train[1000:]), synthetic="en")
    mixed = make(corpus_of(real, synthetic), tmp_path / "mixed")
    assert [(source.held_out, source.synthetic) for source in mixed.manifest.sources] == [(70, ""), (0, "en")]
    alone = make(corpus_of(synthetic), tmp_path / "alone")
    assert [source.held_out for source in alone.manifest.sources] == [70]


def test_training_pairs_are_shuffled(source, tmp_path):
    data = make(corpus_of(source), tmp_path / "data")
    order = [PAIRS.train.index(pair) for pair in decoded(data, "train")[:300]]
    assert abs(np.corrcoef(order, range(300))[0, 1]) < 0.2


def test_the_number_of_workers_does_not_change_the_result(source, tmp_path):
    one, three = (make(corpus_of(source), tmp_path / str(workers), workers=workers) for workers in (1, 3))
    assert digest_of(one.path) == digest_of(three.path)


AUGMENTED = resolve(
    None,
    [
        "tokenizer.vocabulary_size=500", "corpus.valid_pairs=50", "corpus.test_pairs=20", "augmentation.upper_case=0.2",
        "augmentation.typos=0.3",
    ],
).settings  # fmt: skip


def test_augmentation_adds_copies_of_training_pairs_alone(source, tmp_path):
    plain, data = make(corpus_of(source), tmp_path / "plain"), make(corpus_of(source), tmp_path / "data", AUGMENTED)
    for split in ("valid", "test"):
        assert data.text(split) == plain.text(split)
        assert decoded(data, split) == decoded(plain, split)
    training, originals = Counter(decoded(data, "train")), Counter(decoded(plain, "train"))
    copies = training - originals
    assert not originals - training
    [report] = data.manifest.sources
    counts = {name: report.rules[name].pairs for name in ("upper_case", "typos")}
    assert copies.total() == sum(counts.values())
    assert counts["upper_case"] == sum(pair[0].isupper() for pair in copies.elements())
    assert {target for source_side, target in copies if not source_side.isupper()} <= {pair[1] for pair in originals}
    assert report.before.pairs == report.after.pairs + report.held_out
    assert data.manifest.splits["train"].pairs == report.after.pairs + copies.total()
    assert augmented_copies(data.manifest) == counts
    assert dropped_by_rule(data.manifest) == []


def test_the_number_of_workers_does_not_change_an_augmented_data_set(source, tmp_path):
    make(corpus_of(source), tmp_path / "one", AUGMENTED, workers=1)
    make(corpus_of(source), tmp_path / "two", AUGMENTED, workers=2)
    assert digest_of(tmp_path / "one") == digest_of(tmp_path / "two")


def test_the_seed_changes_the_identity(source, tmp_path):
    other = SETTINGS.model_copy(update={"corpus": SETTINGS.corpus.model_copy(update={"seed": 2})})
    data = [make(corpus_of(source), tmp_path / name, settings) for name, settings in (("a", SETTINGS), ("b", other))]
    assert data[0].manifest.identity != data[1].manifest.identity


def test_the_manifest_accounts_for_every_pair(tmp_path):
    dirty = [*PAIRS.train[:900], *PAIRS.train[:50], ("", "leer"), ("same", "same"), ("a " * 90, "b " * 90)]
    data = make(corpus_of(write_tsv(tmp_path / "dirty.tsv", dirty)), tmp_path / "data")
    (report,) = data.manifest.sources
    dropped = {rule: count.pairs for rule, count in report.rules.items() if count.pairs}
    assert dropped == {"duplicate": 50, "empty": 1, "identical": 1, "words": 1}
    assert report.before.pairs == len(dirty) == report.after.pairs + report.held_out + sum(dropped.values())
    assert report.before.text_bytes == (tmp_path / "dirty.tsv").stat().st_size
    encoded = [len(data.tokenizer.encode(" ".join(source.split()))) + 1 for source, _ in dirty]
    assert report.before.source_tokens == sum(encoded)
    assert all(count.samples for rule, count in report.rules.items() if count.pairs)
    lengths = data.pairs("train").lengths()
    train = data.manifest.splits["train"]
    assert (train.source_tokens, train.target_tokens) == tuple(lengths.sum(axis=0).tolist())


def test_the_manifest_survives_json_and_names_every_file(source, tmp_path):
    data = make(corpus_of(source), tmp_path / "data")
    assert Manifest.from_json(json.loads(json.dumps(data.manifest.to_json()))) == data.manifest
    on_disk = digest_of(data.path)
    assert {name: file.sha256 for name, file in data.manifest.files.items()} == {
        name: on_disk[name] for name in on_disk if name not in ("manifest.json", "job.json")
    }


def test_given_evaluation_sets_keep_every_line_and_are_removed_from_training(source, tmp_path):
    evaluation = [*PAIRS.valid, ("", ""), ("same", "same"), PAIRS.train[7], PAIRS.valid[0]]
    valid = write_tsv(tmp_path / "valid.tsv", evaluation)
    data = make(corpus_of(source, valid=(valid,)), tmp_path / "data")
    assert list(zip(*data.text("valid"), strict=True)) == evaluation
    assert len(data.pairs("valid")) == len(evaluation)
    assert PAIRS.train[7] not in decoded(data, "train")


@pytest.mark.parametrize("split", ["valid", "test"])
def test_an_evaluation_set_in_another_encoding_is_refused_unless_the_encoding_is_given(source, tmp_path, split):
    paths = tmp_path / "a.en", tmp_path / "a.de"
    for path in paths:
        path.write_bytes("one\ncaf\u00e9\n".encode("latin-1" if path.suffix == ".de" else "ascii", "replace"))
    given = Source("a", paths, "lines")
    with pytest.raises(CorpusError, match=rf"{paths[1]}, line 2: is not UTF-8: convert it .* such as latin-1"):
        make(corpus_of(source, **{split: (given,)}), tmp_path / "data")
    data = make(corpus_of(source, **{split: (replace(given, encoding="latin-1"),)}), tmp_path / "data")
    assert data.text(split)[1][:2] == ["one", "caf\u00e9"]


def test_weights_repeat_or_subsample_a_source(tmp_path):
    settings = SETTINGS.model_copy(update={"corpus": resolve(None, ["corpus.valid_pairs=0"]).settings.corpus})
    halves = PAIRS.train[:1000], PAIRS.train[1000:2000]
    sources = [write_tsv(tmp_path / f"{number}.tsv", half) for number, half in enumerate(halves)]
    weighted = [Source(s.name, s.paths, s.format, weight) for s, weight in zip(sources, (2.0, 0.5), strict=True)]
    data = make(corpus_of(*weighted), tmp_path / "data", settings)
    pairs = decoded(data, "train")
    assert sum(pair in halves[0] for pair in pairs) == 2000
    assert 420 < sum(pair in halves[1] for pair in pairs) < 580


def test_pairs_with_too_many_tokens_are_dropped(source, tmp_path):
    settings = SETTINGS.model_copy(update={"cleaning": SETTINGS.cleaning.model_copy(update={"max_tokens": 12})})
    data = make(corpus_of(source), tmp_path / "data", settings)
    assert data.pairs("train").lengths().max() == 12
    assert data.manifest.sources[0].rules["tokens"].pairs > 0


def test_a_given_tokenizer_is_used_unchanged(source, tmp_path):
    first = make(corpus_of(source), tmp_path / "first")
    other = write_tsv(tmp_path / "other.tsv", PAIRS.train[:500])
    second = make(corpus_of(other), tmp_path / "second", tokenizer=first.tokenizer)
    assert second.tokenizer.model == first.tokenizer.model


def test_a_finished_data_set_is_recognised_and_replaced_only_with_overwrite(source, tmp_path):
    assert prepare(corpus_of(source), tmp_path / "data", SETTINGS, workers=1)
    before = digest_of(tmp_path / "data")
    assert not prepare(corpus_of(source), tmp_path / "data", SETTINGS, workers=2)
    other = write_tsv(tmp_path / "other.tsv", PAIRS.train[:600])
    with pytest.raises(DragomanError, match="other inputs or settings: choose another --out, or add --overwrite"):
        prepare(corpus_of(other), tmp_path / "data", SETTINGS, workers=1)
    assert digest_of(tmp_path / "data") == before
    assert prepare(corpus_of(other), tmp_path / "data", SETTINGS, workers=1, overwrite=True)
    assert DataSet(tmp_path / "data").manifest.sources[0].before.pairs == 600


@pytest.mark.parametrize("stage", ["Cleaning pairs", "Counting words", "Encoding", "Writing shards"])
def test_an_interrupted_run_resumes_and_publishes_no_temporary_files(source, tmp_path, stage):
    whole = make(corpus_of(source), tmp_path / "whole")

    def interrupt(task: str, done: int, total: int | None) -> None:
        if task == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(corpus_of(source), tmp_path / "data", progress=interrupt)
    assert not (tmp_path / "data").exists()
    finished = tmp_path / "data.partial" / "finished"
    finished.mkdir(exist_ok=True)
    (finished / ".draft").mkdir()
    (finished / ".draft" / "words.tsv").write_text("left by a killed process")
    data = make(corpus_of(source), tmp_path / "data")
    assert digest_of(data.path) == digest_of(whole.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\tb\nc\n", r"bad.tsv, line 2"), (b"", "bad.tsv"), (b"\t\n\t\n", "no training pair is left")],
)
def test_bad_input_leaves_no_files(tmp_path, content, message):
    (tmp_path / "bad.tsv").write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        make(corpus_of(Source("bad", (tmp_path / "bad.tsv",), "tsv")), tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]


def test_two_processes_cannot_prepare_the_same_data_set(source, tmp_path):
    with locked(tmp_path / ".data.partial.lock"), pytest.raises(DragomanError, match="in use by another process"):
        make(corpus_of(source), tmp_path / "data")


def test_a_folder_that_is_not_a_data_set_is_rejected(tmp_path):
    with pytest.raises(DragomanError, match="not a prepared data set"):
        DataSet(tmp_path)


@pytest.mark.parametrize("damage", ["{", "{}", '{"format": 99}', '{"format": 1, "sources": 3}'])
def test_a_damaged_manifest_is_rejected(source, tmp_path, damage):
    (tmp_path / "manifest.json").write_text(damage)
    with pytest.raises(DragomanError, match=r"damaged|format 99"):
        DataSet(tmp_path)


@pytest.mark.system
def test_a_preparation_killed_at_random_times_gives_the_same_bytes(tmp_path):
    """Repeated kill -9: the folder appears only when the data set is complete."""
    text = tmp_path / "train.tsv"
    write_tsv(text, demo.generate(20_000, seed=4, valid=1, test=1).train)
    program = (
        "import sys; from pathlib import Path\n"
        "from dragoman.recipe import resolve\n"
        "from dragoman.corpus import preparation as module\n"
        "from dragoman.corpus.catalog import Corpus\n"
        "from dragoman.corpus.sources import Languages, Source\n"
        "module.BLOCK_PAIRS, module.SHARD_PAIRS = 400, 3000\n"
        "source = Source('train', (Path(sys.argv[1]),), 'tsv')\n"
        "corpus = Corpus('c', Languages('en', 'de'), (source,), (), ())\n"
        "if __name__ == '__main__':\n"
        "    settings = resolve(None, ['tokenizer.vocabulary_size=600']).settings\n"
        "    module.prepare(corpus, Path(sys.argv[2]), settings, workers=2)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(program)

    def start(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(script), str(text), str(out)], start_new_session=True)

    started_at_s = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    whole_s = time.monotonic() - started_at_s
    out = tmp_path / "killed"
    rng = random.Random(7)
    kills = 0
    while kills < 5:
        process = start(out)
        time.sleep(rng.uniform(0.2, 0.8) * whole_s)
        if process.poll() is not None:
            break
        assert not out.exists() or (out / "manifest.json").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert start(out).wait() == 0
    assert kills > 0
    assert digest_of(out) == digest_of(tmp_path / "whole")
    assert block_tasks.BLOCK_PAIRS == 16384

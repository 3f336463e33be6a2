"""Synthesis on one machine: every line exactly once, the same bytes however often it was killed."""

import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragoman.decoding.sampling import LineSampler, SamplingSettings
from dragoman.decoding.translator import Translator
from dragoman.decoding.translator_loading import load
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import export
from dragoman.insight.synthesis_summary import summarize_synthesis
from dragoman.pipeline import SyntheticCorpus, prepare
from dragoman.pipeline import synthesize as synthesize_corpus
from dragoman.progress_callback import no_progress
from dragoman.settings import CleaningSettings, MoneySettings
from dragoman.synthesis import coordinator, synthesis_log, text_shards
from dragoman.synthesis.coordinator import Coordinator
from dragoman.synthesis.corpus_assembly import CorpusOptions
from dragoman.synthesis.shard_store import ShardStore
from dragoman.synthesis.synthesis_folder import SynthesisFolder
from dragoman.synthesis.synthesis_log import SynthesisLog
from dragoman.synthesis.synthesizer import SynthesisRequest, synthesize
from dragoman.synthesis.text_shards import ScannedText

from ..command_line import run_command
from ..synthesis_models import LINES, MIDDLE_SCORE

PYTHON = [sys.executable, "-c"]
SYNTHESIZE = """
import sys
from pathlib import Path
from tests.synthesis.test_synthesizer import make_request
from dragoman.synthesis.synthesizer import synthesize
synthesize(make_request(*map(Path, sys.argv[1:])), lambda *progress: None)
"""


def read_corpus(out: Path) -> tuple[bytes, bytes]:
    return (out / "corpus.en").read_bytes(), (out / "corpus.de").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize_undisturbed(models, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def scored(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize_undisturbed(models, tmp_path_factory.mktemp("scored"), models / "backward")


def synthesize_undisturbed(models: Path, folder: Path, backward: Path | None = None) -> Path:
    (folder / "text.en").write_bytes("".join(f"{line}\n" for line in LINES).encode())
    synthesize(make_request(models / "int8", folder / "text.en", folder / "out", backward), no_progress)
    return folder / "out"


def make_request(model: Path, text: Path, out: Path, backward: Path | None = None) -> SynthesisRequest:
    """Shards of three lines. With a backward model, its scores are the only rule."""
    by_scores = CleaningSettings(rules=("agreement",), min_score=MIDDLE_SCORE)
    options = CorpusOptions(cleaning=None if backward is None else by_scores)
    return SynthesisRequest(model, [text], out, options, shard_lines=3, backward=backward)


def test_the_corpus_is_the_text_and_its_translation(models: Path, undisturbed: Path) -> None:
    sides = [side.decode().removesuffix("\n").split("\n") for side in read_corpus(undisturbed)]
    translations = load(models / "int8").translate(LINES)
    pairs = [pair for pair in zip(LINES, translations, strict=True) if all(pair)]
    assert list(zip(*sides, strict=True)) == pairs


@pytest.mark.parametrize("backward", [(), ("backward",)])
def test_a_synthesis_that_is_killed_again_and_again_ends_with_the_same_bytes(
    models: Path, text: Path, tmp_path: Path, backward: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    undisturbed = request.getfixturevalue("scored" if backward else "undisturbed")
    out, victims = tmp_path / "out", ["worker", "coordinator"]
    command = [
        *PYTHON,
        SYNTHESIZE,
        str(models / "int8"),
        str(text),
        str(out),
        *(str(models / each) for each in backward),
    ]
    process = subprocess.Popen(command)
    while process.poll() is None:
        workers = psutil.Process(process.pid).children()
        if victims and workers and len(list(out.glob("shards/*.zst"))) > 10 * (2 - len(victims)):
            if victims.pop(0) == "worker":
                workers[0].kill()
            else:
                process.kill()
                process.wait()
                _, alive = psutil.wait_procs(workers, timeout=60)
                assert not alive
                process = subprocess.Popen(command)
        time.sleep(0.005)
    assert (process.returncode, victims) == (0, [])
    assert read_corpus(out) == read_corpus(undisturbed)


def test_translations_on_which_both_directions_disagree_are_dropped(scored: Path) -> None:
    folder = SynthesisFolder(scored)
    made = folder.read().corpus
    candidates = [
        each for number in range(len(LINES) // 3) for _, found in folder.shards.read(number)[1] for each in found
    ]
    low = [each for each in candidates if each.text and each.agreement < made["min_score"]]
    assert 0 < made["dropped"]["agreement"]["pairs"] == len(low) < len(candidates)
    assert all(score < made["min_score"] for *_, score in made["dropped"]["agreement"]["examples"])
    assert len(read_corpus(scored)[1].splitlines()) == made["kept_pairs"]


def test_scores_do_not_depend_on_the_cores_of_a_machine(models: Path, text: Path, tmp_path: Path, scored: Path) -> None:
    """Other cores take other batches, so batches must not depend on them."""
    command = [*PYTHON, SYNTHESIZE, *map(str, (models / "int8", text, tmp_path / "out", models / "backward"))]
    core = min(os.sched_getaffinity(0))
    subprocess.run(command, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    for number in range(len(LINES) // 3):
        one, several = (SynthesisFolder(out).shards.read(number) for out in (tmp_path / "out", scored))
        assert list(one[1]) == list(several[1])
        assert one[0].mismatched_scores == several[0].mismatched_scores


def test_the_threshold_may_be_changed_and_the_backward_model_may_not(models: Path, text: Path, tmp_path: Path) -> None:
    def make(**options: object) -> SyntheticCorpus:
        return synthesize_corpus(
            models / "int8", text, tmp_path / "out", shard_lines=30, progress=no_progress, **options
        )

    with pytest.raises(
        DragomanError, match=r"--score-back-with .*int8 translates from en to de: give a model from de to"
    ):
        make(score_back_with=models / "int8")
    backward = models / "backward"
    rules: dict[str, object] = {"cleaning.rules": ["agreement"], "cleaning.min_score": 1000}
    with pytest.raises(DragomanError, match=r"has no pairs: all .* were dropped \(.* by agreement"):
        make(score_back_with=backward, settings=rules)
    none = make(score_back_with=backward, settings={**rules, "cleaning.min_score": -1000})
    assert list(none.description.corpus["dropped"]) == ["empty"]
    with pytest.raises(DragomanError, match=f"was made with --score-back-with {backward}: choose"):
        make()


def test_a_corpus_without_pairs_is_an_error_that_names_the_rules(models: Path, text: Path, tmp_path: Path) -> None:
    arguments = ("synthesize", models / "int8", text, "--out", tmp_path / "out")
    done = run_command(*map(str, arguments), "cleaning.min_words=70")
    assert done.returncode == 2
    assert "translations were dropped (" in done.stderr
    assert "by words" in done.stderr
    advice = summarize_synthesis(tmp_path / "out", time.time())["overview"]["advice"]
    assert advice in " ".join(done.stderr.split())
    assert "Use a better model, or other rules" in advice
    again = run_command(*map(str, arguments), "cleaning.rules=[]")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "corpus.de").stat().st_size


def test_inspect_refers_to_the_report(scored: Path) -> None:
    done = run_command("inspect", str(scored))
    assert done.returncode == 2
    assert f"is a synthetic corpus: run `dragoman report {scored}`" in " ".join(done.stderr.split())


def test_a_low_score_of_the_search_costs_no_model(models: Path, text: Path, tmp_path: Path) -> None:
    def make(min_score: float) -> dict[str, Any]:
        rules = {"cleaning.rules": ["score"], "cleaning.min_score": min_score}
        made = synthesize_corpus(models / "int8", text, tmp_path / "out", settings=rules, progress=no_progress)
        return made.description.corpus

    make(-1000)
    shard = SynthesisFolder(tmp_path / "out").shards.read(0)[1]
    middle = statistics.median(each.score for _, found in shard for each in found)
    dropped = make(middle)["dropped"]["score"]
    assert 0 < dropped["pairs"] < len(LINES)
    assert all(score < middle for *_, score in dropped["examples"])


def test_a_model_in_training_is_exported_and_its_copy_resumes(models: Path, text: Path, tmp_path: Path) -> None:
    """Back-translation with two candidates, a tag, and a rule; then the same translations with other options."""

    def keep(source: str, target: str, score: float) -> str | None:
        return "teacher" if "teacher" in source else None

    corpus = synthesize_corpus(
        models / "torch",
        text,
        tmp_path / "out",
        back=True,
        tag="<BT>",
        n_best=2,
        keep=keep,
        progress=no_progress,
        settings={"cleaning.rules": ["identical"]},
    )
    made = corpus.description.corpus
    assert corpus.files == (tmp_path / "out" / "corpus.de", tmp_path / "out" / "corpus.en")
    synthetic, real = (path.read_text().split("\n")[:-1] for path in corpus.files)
    assert len(synthetic) == len(real) == made["kept_pairs"]
    assert all(line.startswith("<BT> ") for line in synthetic)
    assert max(map(real.count, real)) >= 2
    dropped = {rule: entry["pairs"] for rule, entry in made["dropped"].items()}
    assert dropped["empty"] == 1
    assert dropped["teacher"] > 0
    assert made["kept_pairs"] + sum(dropped.values()) == made["translated_pairs"]
    assert all("teacher" in source for source, _, _ in made["dropped"]["teacher"]["examples"])

    shard = tmp_path / "out" / "shards" / "00000000.jsonl.zst"
    written_at_s = shard.stat().st_mtime_ns
    rules = {"cleaning.rules": ["words"], "cleaning.max_words": 12}
    again = synthesize_corpus(models / "torch", text, tmp_path / "out", n_best=2, settings=rules, progress=no_progress)
    assert shard.stat().st_mtime_ns == written_at_s
    assert again.files == corpus.files[::-1]
    found = again.description.corpus["dropped"]
    assert set(found) == {"empty", "words"}
    assert all(
        len(f"{source} ".split(" ")) > 12 or len(target.split(" ")) > 12
        for source, target, _ in found["words"]["examples"]
    )
    _check_other_request_is_refused(models, text, again)


def _check_other_request_is_refused(models: Path, text: Path, corpus: SyntheticCorpus) -> None:
    text.write_text("Another text.\n")
    with pytest.raises(DragomanError, match="was made with other texts and --n-best 2 and other decoding settings:"):
        synthesize_corpus(models / "torch", text, corpus.path, beam=3, progress=no_progress)


def test_the_corpus_can_be_prepared(undisturbed: Path, tmp_path: Path) -> None:
    prepared = prepare(undisturbed, tmp_path / "data", workers=1, progress=no_progress)
    manifest = prepared.dataset.manifest
    assert manifest.languages.direction == "en-de"
    assert [(source.name, source.synthetic) for source in manifest.sources] == [("out", "de")]


def test_the_progress_tells_speed_cost_and_what_limits_it(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    class Notes:
        def __call__(self, task: str, done: int, total: int | None) -> None:
            """Not looked at."""

        def note(self, text: str) -> None:
            texts.append(text)

    monkeypatch.setattr(synthesis_log, "NOTE_INTERVAL_S", 0.0)
    money = MoneySettings(price_per_hour=[3600.0])
    request = SynthesisRequest(models / "int8", [text], tmp_path / "out", shard_lines=3, money=money)
    synthesize(request, Notes())
    assert re.match(r"time left: measuring; \d\.\d\d USD so far; 0 of 1 workers ready\nWhat", texts[0])
    known = re.compile(
        r"[\d,.]+ lines/s; (.+ left|writing.+); [\d.]+ USD so far, [\d.]+ USD in total\nWhat limits it: "
    )
    assert known.match(texts[-1])


def test_a_folder_with_other_files_is_not_used(models: Path, text: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").touch()
    with pytest.raises(DragomanError, match="has other files in it"):
        synthesize(SynthesisRequest(models / "int8", [text], tmp_path / "out", CorpusOptions()), no_progress)


REFUSED: dict[str, dict[str, Any]] = {
    "is not a word": {"tag": "a b"},
    "decoding.beam": {"n_best": 9, "beam": 1},
    "no line that": {"texts": "empty"},
    "There is no file": {"texts": "missing"},
    "UTF-16": {"texts": "utf-16"},
    "which cannot sample": {"model": "int8", "sampling": {}},
    "give a model from de to en": {"score_back_with": "int8"},
    "is not allowed": {"beam": -1},
    "cannot be used": {"hosts": ["nobody"]},
    "no machine has a GPU": {"device": "cuda"},
    "one worker uses all cores: write localhost": {"hosts": ["localhost:2"]},
    "twice: write localhost once": {"hosts": ["localhost,localhost"]},
}


@pytest.mark.parametrize("out", ["new", "new/nested/deep", "there"])
@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_start_leaves_everything_as_it_was(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, out: str
) -> None:
    monkeypatch.setattr(coordinator, "count_local_gpus", lambda: 0)
    (tmp_path / "empty").touch()
    (tmp_path / "utf-16").write_bytes("A dog.\n".encode("utf-16"))
    (tmp_path / "ssh").write_text("Host nobody\n  ProxyCommand sh -c 'exit 1'\n")
    (tmp_path / "there").mkdir()
    before = sorted(tmp_path.rglob("*"))
    changes = {"texts": text, "model": "torch", **REFUSED[reason]}
    changes |= {"model": models / changes["model"], "texts": tmp_path / changes["texts"]}
    if "score_back_with" in changes:
        changes["score_back_with"] = models / changes["score_back_with"]
    with pytest.raises(DragomanError, match=reason):
        synthesize_corpus(out=tmp_path / out, ssh_config=tmp_path / "ssh", progress=no_progress, **changes)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("changed", ["model", "backward"])
@pytest.mark.parametrize("is_export", [False, True])
def test_a_run_that_goes_on_changes_nothing_and_a_changed_export_is_refused(
    models: Path, text: Path, tmp_path: Path, changed: str, *, is_export: bool
) -> None:
    changed_model = tmp_path / ("torch" if changed == "model" else "backward")
    for name in ("torch", "backward"):
        if is_export and name == changed_model.name:
            export(models / name, tmp_path / name, "ctranslate2")
        else:
            shutil.copytree(models / name, tmp_path / name)

    def make(forward: str = "torch", backward: str = "backward") -> tuple[bytes, bytes]:
        synthesize(make_request(tmp_path / forward, text, tmp_path / "out", tmp_path / backward), no_progress)
        return read_corpus(tmp_path / "out")

    first = make()
    (tmp_path / "out" / "shards" / "00000002.jsonl.zst").unlink()
    [weights] = [path for path in changed_model.iterdir() if path.suffix in (".safetensors", ".bin")]
    content = weights.read_bytes()
    weights.write_bytes(content[:-8] + bytes(8))
    if is_export:
        with pytest.raises(DragomanError, match=f"was made with another {changed}"):
            make()
        return
    assert make() == first
    shutil.copytree(tmp_path / changed_model.name, tmp_path / "other")
    with pytest.raises(DragomanError, match=f"was made with another {changed}"):
        make(**{"forward" if changed == "model" else "backward": "other"})
    shutil.rmtree(tmp_path / "out" / changed)  # There is nothing else to resume with.
    with pytest.raises(DragomanError, match=f"was made with another {changed}"):
        make()


def test_a_local_worker_that_is_killed_is_reported_without_ssh(models: Path, text: Path, tmp_path: Path) -> None:
    def kill(task: str, done: int, total: int | None) -> None:
        if task == "Translating lines" and 3 < done < 9:
            for worker in psutil.Process().children():
                worker.kill()

    with pytest.warns(match=r"^localhost was lost \(its process ended with SIGKILL\): "):
        synthesize(make_request(models / "int8", text, tmp_path / "out"), kill)


KILLS: dict[str, tuple[type, str, int]] = {
    "before a worker is ready": (Coordinator, "run", 1),
    "while a shard is stored": (ShardStore, "write", 5),
    "before the corpus is written": (CorpusOptions, "make_filter", 1),
    "while the corpus is written": (ShardStore, "read", 7),
    "before the corpus is described": (SynthesisFolder, "write", 2),
    "before the end is recorded": (SynthesisLog, "finish", 1),
}


@pytest.mark.parametrize("killed", KILLS)
def test_time_in_which_nothing_ran_is_no_time_of_the_synthesis(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """It is killed and continued on the next day; on another one its corpus is made again."""
    request, log = make_request(models / "int8", text, tmp_path / "out"), tmp_path / "out" / "events-0.jsonl"

    def wait_for_a_day() -> None:
        events = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("".join(json.dumps({**event, "at_s": event["at_s"] - 86400}) + "\n" for event in events))

    begun_at_s = time.monotonic()
    with monkeypatch.context() as patch:
        kill_at(patch, *KILLS[killed])
        patch.setattr(SynthesisLog, "interrupt", lambda log: None)
        with pytest.raises(KilledError):
            synthesize(request, no_progress)
    for options in (request.options, CorpusOptions(tag="<BT>")):
        wait_for_a_day()
        synthesize(replace(request, options=options), no_progress)
        worked_s = time.monotonic() - begun_at_s
        summary = summarize_synthesis(tmp_path / "out", time.time())
        assert (summary["state"], summary["step"]) == ("finished", len(LINES))
        assert 0 < summary["elapsed_s"] < worked_s
        assert sum(summary["time_use"].values()) == pytest.approx(summary["elapsed_s"], abs=0.1)
        assert "not known" not in summary["overview"]["limit"]


class KilledError(Exception):
    pass


def kill_at(patch: pytest.MonkeyPatch, owner: type, name: str, call: int) -> None:
    """Raise an error in this call of a method."""
    calls, method = itertools.count(1), getattr(owner, name)

    def work(*arguments: Any) -> Any:
        if next(calls) == call:
            raise KilledError
        return method(*arguments)

    patch.setattr(owner, name, work)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "shortened": lambda content: content[: len(content) // 2],
    "rewritten": lambda content: content.replace(b"the", b"all"),
    "grows": lambda content: content + b"One more line.\n",
    "emptied": lambda content: b"",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_text_that_changes_is_named_and_its_restored_form_resumes(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path, change: str
) -> None:
    content, read_again = text.read_bytes(), text_shards.ScannedText.lines

    def read_changed(scanned: ScannedText) -> Iterator[bytes]:
        text.write_bytes(CHANGES[change](content))
        return read_again(scanned)

    request = make_request(models / "int8", text, tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(text_shards, "_BLOCK_LINES", 10)
        patch.setattr(ScannedText, "lines", read_changed)
        with pytest.raises(DragomanError, match=r"text\.en has changed since .*: restore it .*"):
            synthesize(request, no_progress)
    text.write_bytes(content)
    synthesize(request, no_progress)
    assert read_corpus(tmp_path / "out") == read_corpus(undisturbed)


def test_until_a_shard_is_finished_a_synthesis_may_be_begun_with_other_arguments(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(**options: Any) -> SyntheticCorpus:
        return synthesize_corpus(
            models / "torch", text, tmp_path / "out", settings={"cleaning.rules": []}, progress=no_progress, **options
        )

    monkeypatch.setattr(coordinator, "count_local_gpus", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # Of the worker, which is another process.
    with pytest.warns(match="is left out: "), pytest.raises(DragomanError, match="No worker is left: "):
        make(device="cuda", shard_lines=50)
    made = make(device="cpu", n_best=2, shard_lines=40).description
    assert (made.job.device, made.job.n_best, made.shard_lines) == ("cpu", 2, 40)
    assert made.corpus["read_lines"] == len(LINES)
    with pytest.raises(DragomanError, match="was made with --device cpu and --n-best 2"):
        make(device="cuda")


@pytest.mark.parametrize(
    "options",
    [
        ["--top-k", "10"],
        ["--temperature", "1.0"],
        ["--seed", "1"],
        ["--temperature", "0.5", "--top-k", "0", "--seed", "4"],
    ],
)
def test_options_of_sampling_without_it_are_refused(
    models: Path, text: Path, tmp_path: Path, options: list[str]
) -> None:
    done = run_command("synthesize", str(models / "torch"), str(text), "--out", str(tmp_path / "out"), *options)
    assert done.returncode == 2
    assert f"{' and '.join(options[::2])} would have no effect without --sample" in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_samples_belong_to_their_lines_however_the_text_is_divided(models: Path, text: Path, tmp_path: Path) -> None:
    synthesize_corpus(
        models / "torch",
        text,
        tmp_path / "out",
        sampling={"top_k": 5},
        shard_lines=17,
        progress=no_progress,
        settings={"cleaning.rules": []},
    )
    translator = load(models / "torch", "cpu")
    assert isinstance(translator, Translator)
    drawn = LineSampler(translator, SamplingSettings(top_k=5)).sample(LINES, 0, 1)
    texts = [candidates[0].text for candidates in drawn]
    assert read_corpus(tmp_path / "out")[1].decode() == "".join(f"{each}\n" for each in texts if each)
    with pytest.raises(DragomanError, match="is an export, which cannot sample"):
        synthesize_corpus(models / "int8", text, tmp_path / "export", sampling={}, progress=no_progress)

"""Runs that begin with the weights of another model: what fits, what is trained, and what is frozen."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.foreign_models import make_marian, make_nllb
from safetensors.torch import load_file

from dragoman.corpus.dataset import DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages
from dragoman.decoding.model_choice import find_tokenizer
from dragoman.errors import DragomanError
from dragoman.events import EvaluationDone, PeakMeasured, RunStarted, StepDone
from dragoman.exporting.exporter import export
from dragoman.launch import local_launcher
from dragoman.model.model_folder import load_model
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.training import worker
from dragoman.training.start_model import StartModel
from dragoman.training.worker import TrainingJob

from ..conftest import make_corpus
from ..models import PAIRS, save_random_model, small_architecture
from ..shared_folder import shared_folder
from ..small import TINY
from .recorded_run import FakeScorer

KEEP_ALL = ("checkpoint.keep_last=9",)
TRAINING = [setting for setting in TINY if not setting.startswith(("model.", "schedule."))]


def fine_tuning(*overrides: str) -> Settings:
    return resolve(None, [*TRAINING, *overrides]).settings


def make_scorer(*_: object) -> FakeScorer:
    return FakeScorer()


@pytest.fixture(autouse=True)
def _no_peak_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "measure_peak", lambda *_: PeakMeasured(flops_per_s=1e9))


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "marian", lambda folder: make_marian(folder / "model", PAIRS)) / "model"


@pytest.fixture(scope="module")
def marian_data(tmp_path_factory: pytest.TempPathFactory, marian: Path) -> DataSet:
    def make(folder: Path) -> None:
        corpus = make_corpus(folder)
        tokenizer = find_tokenizer(marian, corpus.languages)
        prepare(corpus, folder / "data", resolve().settings, workers=1, tokenizer=tokenizer)

    return DataSet(shared_folder(tmp_path_factory, "marian-data", make) / "data")


@pytest.fixture
def job(marian: Path, marian_data: DataSet, tmp_path: Path) -> TrainingJob:
    return TrainingJob(fine_tuning(), marian_data.path, tmp_path / "run", start=StartModel(marian))


def train(job: TrainingJob) -> list[float]:
    """Train with one worker. Returns the losses of all steps of the run so far."""
    worker.train(job, make_scorer, lambda *_: [])
    return losses_of(job)


def losses_of(job: TrainingJob) -> list[float]:
    return [event.loss for event in RunFolder(job.run).events() if isinstance(event, StepDone)]


def final_weights(job: TrainingJob, file: str = "weights.safetensors") -> dict[str, torch.Tensor]:
    return load_file(job.run / "checkpoints" / "last" / file)


def state_direction(model: Path, copy: Path, source: str, target: str) -> Path:
    """A copy of a MarianMT folder that states another direction."""
    shutil.copytree(model, copy, copy_function=shutil.copyfile)
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source_lang": source, "target_lang": target}))
    return copy


def test_a_run_begins_with_the_weights_and_the_architecture_of_the_model(job: TrainingJob, marian: Path) -> None:
    short = replace(job, settings=fine_tuning("training.steps=1", "fine_tuning.learning_rate=1e-9"))
    train(short)
    stored = load_model(marian)
    assert all(torch.allclose(tensor, final_weights(short)[name]) for name, tensor in stored.model.state_dict().items())
    settings = json.loads((job.run / "config.json").read_text())["settings"]
    assert (settings["model"]["norm_position"], settings["model"]["d_model"]) == ("after", 64)
    assert (settings["schedule"]["policy"], settings["schedule"]["learning_rate"]) == ("linear", 1e-9)


def evaluations_of(job: TrainingJob) -> list[EvaluationDone]:
    return [event for event in RunFolder(job.run).events() if isinstance(event, EvaluationDone)]


def test_the_start_is_an_event_and_part_of_the_configuration(job: TrainingJob, marian: Path, data: DataSet) -> None:
    train(replace(job, settings=fine_tuning("training.steps=1")))
    [started] = [event for event in RunFolder(job.run).events() if isinstance(event, RunStarted)]
    assert started.start == json.loads((job.run / "config.json").read_text())["start"]
    expected = {"model": str(marian), "format": "MarianMT", "languages": "en-de"}
    assert {key: started.start[key] for key in expected} == expected
    ours = save_random_model(job.run.parent / "ours", small_architecture("small"), data.tokenizer)
    assert StartModel(ours).open(fine_tuning(), data).origin["format"] == "Dragoman"


def test_the_starting_model_is_evaluated_and_saved_before_the_first_step_and_not_again(
    job: TrainingJob, marian: Path
) -> None:
    for steps in (2, 4):
        train(replace(job, settings=fine_tuning(f"training.steps={steps}", "evaluation.every=2", *KEEP_ALL)))
    assert [done.step for done in evaluations_of(job)] == [0, 2, 4]
    saved = load_model(job.run / "checkpoints" / "step-00000000").model.state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in load_model(marian).model.state_dict().items())
    # Interrupted after step 0: it resumes from there.
    for name in ("step-00000002", "step-00000004"):
        shutil.rmtree(job.run / "checkpoints" / name)
    train(replace(job, settings=fine_tuning("training.steps=4", "evaluation.every=2", *KEEP_ALL)))
    assert [done.step for done in evaluations_of(job)] == [0, 2, 4, 2, 4]


def test_a_model_that_only_gets_worse_ends_early_and_stays_the_best(job: TrainingJob) -> None:
    settings = fine_tuning(
        "training.steps=9", "evaluation.every=1", "evaluation.patience=2", "evaluation.patience_metric=bleu",
        "checkpoint.average=2",
    )  # fmt: skip
    worker.train(replace(job, settings=settings), lambda *_: FakeScorer([9.0, 8.0, 7.0, 6.0]), lambda *_: [])
    assert [done.step for done in evaluations_of(job)] == [0, 1, 2]
    checkpoints = job.run / "checkpoints"
    assert (checkpoints / "best-bleu").resolve().name == "step-00000000"
    averaged = json.loads((checkpoints / "averaged" / "state.json").read_text())
    assert averaged["average_of"] == ["step-00000002", "step-00000001"], "the starting model is no part of an average"
    assert "net_gain" not in json.loads((checkpoints / "last" / "state.json").read_text())["best"]


def test_fine_tuning_lowers_the_loss(job: TrainingJob) -> None:
    losses = train(replace(job, settings=fine_tuning("training.steps=30", "fine_tuning.learning_rate=0.003")))
    assert sum(losses[-5:]) < sum(losses[:5])


def test_the_rate_grows_in_the_first_fraction_of_the_steps(marian: Path, marian_data: DataSet) -> None:
    settings = fine_tuning("training.steps=1000", "fine_tuning.warmup_fraction=0.1", "fine_tuning.policy=cosine")
    schedule = StartModel(marian).open(settings, marian_data).settings.schedule
    assert (schedule.policy, schedule.warmup_steps, schedule.learning_rate) == ("cosine", 100, 2e-4)


@pytest.mark.parametrize(
    "changes",
    [
        ["fine_tuning.freeze=encoder"],
        ["fine_tuning.freeze=embeddings,decoder", "optimizer.algorithm=muon"],
        ["fine_tuning.freeze=encoder,decoder", "optimizer.algorithm=muon", "optimizer.ema_decay=0.9"],
        ["fine_tuning.freeze=embeddings", "optimizer.ema_decay=0.9", "optimizer.clip_norm=1"],
    ],
)
def test_frozen_parts_stay_as_they_are_and_the_run_resumes_bit_for_bit(
    job: TrainingJob, marian: Path, tmp_path: Path, changes: list[str]
) -> None:
    whole = replace(job, settings=fine_tuning("training.steps=6", *changes), run=tmp_path / "whole")
    losses = train(whole)
    before, frozen = load_model(marian).model.state_dict(), whole.settings.fine_tuning.freeze
    prefixes = tuple("embedding" if part == "embeddings" else part for part in frozen)
    for file in ("weights.safetensors", *(["trained.safetensors"] if whole.settings.optimizer.ema_decay else [])):
        after = final_weights(whole, file)
        assert after.keys() == before.keys()
        for name, tensor in before.items():
            is_frozen = name.startswith(prefixes) or name == "output_bias"
            # The bias of keys has no effect on attention, and so no gradient; rounding decides.
            assert torch.equal(after[name], tensor) == is_frozen, name
    for steps in (3, 6):
        settings = fine_tuning(f"training.steps={steps}", "fine_tuning.policy=constant", *changes)
        train(replace(job, settings=settings, run=tmp_path / "parts"))
    constant = replace(
        whole, settings=fine_tuning("training.steps=6", "fine_tuning.policy=constant", *changes), run=tmp_path / "again"
    )
    assert losses_of(replace(job, run=tmp_path / "parts")) == train(constant)
    assert len(losses) == 6


@pytest.mark.parametrize("changes", [[], ["fine_tuning.freeze=encoder"], ["exchange.method=local", "exchange.every=3"]])
def test_two_workers_train_as_one(job: TrainingJob, tmp_path: Path, changes: list[str]) -> None:
    settings = fine_tuning("training.steps=6", "fine_tuning.freeze=embeddings", *changes)
    alone = replace(job, settings=settings, run=tmp_path / "alone", threads=1)
    together = replace(alone, run=tmp_path / "together")
    train(alone)
    local_launcher.train(together, 2, make_scorer)
    assert [done.step for done in evaluations_of(together)] == [0, 5, 6]
    assert losses_of(together)[:3] == pytest.approx(losses_of(alone)[:3], rel=0.05)
    if not changes or "local" not in changes[0]:
        assert losses_of(together) == pytest.approx(losses_of(alone), abs=1e-4)


def test_all_that_does_not_fit_is_listed_and_nothing_written(
    job: TrainingJob, marian_data: DataSet, data: DataSet, tmp_path: Path
) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("small"), marian_data.tokenizer, direction="fr-de")
    given = ("model.d_model", "schedule.learning_rate", "model.dropout")
    settings = fine_tuning("model.d_model=512", "model.dropout=0.3")
    start = StartModel(model, given)
    with pytest.raises(DragomanError) as error:
        train(replace(job, settings=settings, data=data.path, start=start))
    for part in (
        "model.d_model = 512, but the model has 64: leave it out",
        "schedule.learning_rate has no effect with --from",
        "the model translates fr-de, but the data set is en-de",
        f"the data set has another tokenizer: prepare it again with `--tokenizer {model}`",
    ):
        assert part in str(error.value), part
    assert "dropout" not in str(error.value)
    assert not job.run.exists()


def test_a_model_of_another_direction_is_refused(job: TrainingJob, marian: Path) -> None:
    with pytest.raises(DragomanError, match=r"the model translates en-de, not fr-de: use one of that direction"):
        train(replace(job, start=StartModel(Path(f"fr-de={marian}"))))
    copy = state_direction(marian, job.run.parent / "reversed", "de", "en")
    with pytest.raises(DragomanError, match="the model translates de-en, but the data set is en-de: prepare one of"):
        train(replace(job, start=StartModel(Path(f"de-en={copy}"))))
    assert not job.run.exists()


def test_a_model_of_many_languages_starts_only_with_data_of_its_direction(tmp_path: Path) -> None:
    nllb = make_nllb(tmp_path / "nllb", PAIRS)
    corpus = make_corpus(tmp_path)
    french = find_tokenizer(nllb, Languages("en", "fr"))
    prepare(corpus, tmp_path / "data", resolve().settings, workers=1, tokenizer=french)
    data = DataSet(tmp_path / "data")
    with pytest.raises(DragomanError, match="the model translates en-fr, but the data set is en-de"):
        StartModel(Path(f"en-fr={nllb}")).open(fine_tuning(), data)
    with pytest.raises(DragomanError, match="the data set has another tokenizer") as error:
        StartModel(Path(f"eng_Latn-deu_Latn={nllb}")).open(fine_tuning(), data)
    assert "translates" not in str(error.value)


def test_a_run_of_ours_and_its_exports_can_be_started_from(data: DataSet, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("small"), data.tokenizer)
    for number, start in enumerate((model, export(model, tmp_path / "safetensors", "safetensors"))):
        run = tmp_path / f"run-{number}"
        train(TrainingJob(fine_tuning("training.steps=2"), data.path, run, start=StartModel(start)))
    first, second = (load_file(tmp_path / f"run-{n}/checkpoints/last/weights.safetensors") for n in (0, 1))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    with pytest.raises(DragomanError, match="export for CTranslate2, which cannot be trained"):
        StartModel(export(model, tmp_path / "ctranslate2", "ctranslate2")).open(fine_tuning(), data)


def test_a_run_resumes_only_from_the_weights_it_began_with(job: TrainingJob, tmp_path: Path, marian: Path) -> None:
    train(replace(job, settings=fine_tuning("training.steps=2")))
    other = make_marian(tmp_path / "other", PAIRS, end_bias=1.0)
    with pytest.raises(DragomanError, match=rf"began from {marian}, and not with these weights"):
        train(replace(job, start=StartModel(other)))
    settings = job.start.open(job.settings, DataSet(job.data)).settings  # type: ignore[union-attr]
    with pytest.raises(DragomanError, match=rf"or give --from {marian}"):
        train(replace(job, start=None, settings=settings))


def test_the_whole_model_cannot_be_frozen() -> None:
    with pytest.raises(DragomanError, match="freezes the whole model: leave out one part"):
        fine_tuning("fine_tuning.freeze=encoder,decoder,embeddings")

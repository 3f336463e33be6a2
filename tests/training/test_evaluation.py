import copy
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dragoman.corpus.evaluation_set import EvaluationSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import WorkersLostError
from dragoman.event_json import from_json, to_json
from dragoman.events import EvaluationDone
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.telemetry.kept_translations import TranslationStore
from dragoman.training.checkpoint import AVERAGED, BEST_BLEU
from dragoman.training.evaluation import Evaluator

from ..distributed.fake_cluster import FakeCluster
from ..distributed.thread_workers import ThreadWorkers
from ..small import tiny
from .recorded_run import FakeScorer


@pytest.fixture
def alone():
    cluster = FakeCluster()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def model(data) -> Transformer:
    torch.manual_seed(1)
    return Transformer(Architecture(vocabulary=data.tokenizer.padded_vocab_size, **tiny().model.model_dump()))


def make_evaluator(data, cluster: Cluster, folder: Path, *overrides: str, scorer: FakeScorer | None = None):
    settings = tiny(*overrides)
    precision = Precision.choose(settings, cluster.device)
    return Evaluator(settings, data, RunFolder(folder), cluster, precision, scorer or FakeScorer(), 100)


@pytest.fixture
def evaluate(tmp_path):
    def evaluate(data, model: Transformer, cluster: Cluster, *overrides: str) -> EvaluationDone:
        evaluator = make_evaluator(data, cluster, tmp_path, *overrides)
        return evaluator.evaluate(copy.deepcopy(model), step=7)

    return evaluate


def test_the_loss_is_over_all_target_tokens(data, model, alone, evaluate):
    done = evaluate(data, model, alone)
    assert done.step == 7
    assert done.target_tokens == data.pairs("valid").lengths()[:, 1].sum()
    assert done.perplexity == pytest.approx(math.exp(done.nll))


def test_several_workers_evaluate_like_one(data, model, alone, evaluate):
    expected = evaluate(data, model, alone)
    with ThreadWorkers("a", "b", "c") as workers:
        results = workers(lambda cluster: evaluate(data, model, cluster))
    for done in results:
        assert (done.loss, done.nll) == (pytest.approx(expected.loss), pytest.approx(expected.nll))
        assert done.target_tokens == expected.target_tokens
        assert done.samples == expected.samples
        assert (done.bleu, done.chrf) == (1.0, 1.0), "only the main worker scores"


def test_other_sets_are_evaluated_like_the_validation_set(data, old_data, model, alone, tmp_path):
    sets = [
        replace(EvaluationSet.validation(data), name="again"),
        replace(EvaluationSet.validation(old_data), name="old"),
    ]

    def evaluate(cluster: Cluster) -> EvaluationDone:
        evaluator = replace(make_evaluator(data, cluster, tmp_path), other_sets=sets)
        return evaluator.evaluate(copy.deepcopy(model), step=7)

    done = evaluate(alone)
    again, old = done.sets["again"], done.sets["old"]
    assert (again["loss"], again["nll"], again["target_tokens"]) == (done.loss, done.nll, done.target_tokens)
    assert old["target_tokens"] == old_data.pairs("valid").lengths()[:, 1].sum()
    assert [each["bleu"] for each in (again, old)] == [2.0, 3.0], "each is scored after the validation set"
    with ThreadWorkers("a", "b", "c") as workers:
        for other in workers(evaluate):
            assert other.sets["old"] == pytest.approx(old)
    translated = TranslationStore(tmp_path / "translations").read(BEST_BLEU)
    assert list(translated.references) == data.text("valid")[1][:4]


def test_scores_on_other_sets_that_are_not_finite_are_none(data, model, alone, tmp_path):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(math.nan)
    sets = [replace(EvaluationSet.validation(data), name="again")]
    evaluator = replace(make_evaluator(data, alone, tmp_path, "evaluation.bleu=false"), other_sets=sets)
    done = evaluator.evaluate(broken, step=7)
    assert done.sets["again"]["nll"] is None
    assert from_json(to_json(done)).sets == done.sets


def test_samples_are_the_first_sentences_in_order(data, model, alone, evaluate):
    done = evaluate(data, model, alone, "evaluation.samples=3", "evaluation.sentences=4")
    sources, references = data.text("valid")
    assert [sample["source"] for sample in done.samples] == list(sources[:3])
    assert [sample["reference"] for sample in done.samples] == list(references[:3])
    assert [sample["translation"] for sample in done.samples] == list(sources[:3])


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_as_before_if_a_worker_is_lost_meanwhile(data, model, alone, tmp_path, training):
    class LosesWorkers(FakeScorer):
        def translate(self, model, lines):
            assert not model.training
            raise WorkersLostError([], "connection reset")

    evaluated = copy.deepcopy(model).train(training)
    with pytest.raises(WorkersLostError):
        make_evaluator(data, alone, tmp_path, scorer=LosesWorkers()).evaluate(evaluated, step=7)
    assert evaluated.training is training


def test_without_bleu_nothing_is_translated(data, model, alone, evaluate):
    done = evaluate(data, model, alone, "evaluation.bleu=false")
    assert (done.bleu, done.chrf, done.samples) == (None, None, [])


def test_the_translations_of_the_best_evaluation_and_of_the_average_are_kept(data, model, alone, tmp_path):
    scorer = FakeScorer([2.0, 3.0, 1.0, 0.5])
    evaluator = make_evaluator(data, alone, tmp_path, "evaluation.sentences=4", scorer=scorer)
    for step in (10, 20, 30):
        evaluator.evaluate(copy.deepcopy(model), step)
    evaluator.evaluate(copy.deepcopy(model), 30, AVERAGED)
    sources, references = data.text("valid")
    store = TranslationStore(tmp_path / "translations")
    best, averaged = (store.read(checkpoint) for checkpoint in (BEST_BLEU, AVERAGED))
    assert (best.step, best.bleu, averaged.step, averaged.bleu) == (20, 3.0, 30, 0.5)
    assert (best.references, best.translations) == (tuple(references[:4]), tuple(sources[:4]))
    assert best.language == data.languages.target


def test_only_the_worker_that_scores_keeps_translations(data, model, tmp_path):
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    with ThreadWorkers("a", "b") as workers:
        workers(
            lambda cluster: make_evaluator(data, cluster, tmp_path / str(cluster.rank)).evaluate(
                copy.deepcopy(model), step=7
            )
        )
    assert [(tmp_path / str(rank) / "translations").exists() for rank in range(2)] == [True, False]


class ChangingScorer(FakeScorer):
    """Translates the first lines anew at each call, one more each time."""

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        self.changed = getattr(self, "changed", -1) + 1
        return [f"{line} {self.changed}" if n < self.changed else line for n, line in enumerate(lines)]


def test_gains_are_measured_from_the_model_that_the_run_began_with(data, model, alone, tmp_path):
    evaluator = make_evaluator(data, alone, tmp_path, "evaluation.sentences=4", scorer=ChangingScorer())
    first, second, third = (evaluator.evaluate(copy.deepcopy(model), step) for step in (0, 10, 20))
    assert first.gains == {}
    assert [done.gains["valid"]["bleu"] for done in (second, third)] == [1.0, 2.0]
    assert from_json(to_json(third)).gains == third.gains
    other_text = replace(evaluator, settings=tiny("evaluation.sentences=3"))
    assert other_text.evaluate(copy.deepcopy(model), 30).gains == {}, "it was resumed with other sentences"


def test_a_run_from_scratch_has_no_gains(data, model, alone, tmp_path):
    evaluator = make_evaluator(data, alone, tmp_path)
    assert [evaluator.evaluate(copy.deepcopy(model), step).gains for step in (10, 20)] == [{}, {}]


def test_a_main_worker_without_the_first_translations_leaves_scoring_to_one_that_has_them(data, model, tmp_path):
    def evaluate(cluster: Cluster) -> list[EvaluationDone]:
        folder = tmp_path / cluster.host
        folder.mkdir()
        evaluator = make_evaluator(data, cluster, folder, scorer=FakeScorer())
        first = evaluator.evaluate(copy.deepcopy(model), 0)
        if cluster.is_main:
            shutil.rmtree(folder / "translations")  # As if this machine had joined later.
        return [first, evaluator.evaluate(copy.deepcopy(model), 10)]

    with ThreadWorkers("a", "b") as workers:
        results = workers(evaluate)
    assert [last.gains for _, last in results] == [{"valid": {"bleu": 0.0, "low": -0.5, "high": 0.5}}] * 2

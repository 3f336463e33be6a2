import copy
import math

import pytest
import torch

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import WorkersLostError
from dragoman.events import EvaluationDone
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
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


def evaluate(data, model: Transformer, cluster: Cluster, *overrides: str) -> EvaluationDone:
    settings = tiny(*overrides)
    precision = Precision.choose(settings, cluster.device)
    return Evaluator(settings, data, cluster, precision, FakeScorer(), 100).evaluate(copy.deepcopy(model), step=7)


def test_the_loss_is_over_all_target_tokens(data, model, alone):
    done = evaluate(data, model, alone)
    assert done.step == 7
    assert done.target_tokens == data.pairs("valid").lengths()[:, 1].sum()
    assert done.perplexity == pytest.approx(math.exp(done.nll))


def test_several_workers_evaluate_like_one(data, model, alone):
    expected = evaluate(data, model, alone)
    with ThreadWorkers("a", "b", "c") as workers:
        results = workers(lambda cluster: evaluate(data, model, cluster))
    for done in results:
        assert (done.loss, done.nll) == (pytest.approx(expected.loss), pytest.approx(expected.nll))
        assert done.target_tokens == expected.target_tokens
        assert done.samples == expected.samples
        assert (done.bleu, done.chrf) == (1.0, 1.0), "only the main worker scores"


def test_samples_are_the_first_sentences_in_order(data, model, alone):
    done = evaluate(data, model, alone, "evaluation.samples=3", "evaluation.sentences=4")
    sources, references = data.text("valid")
    assert [sample["source"] for sample in done.samples] == list(sources[:3])
    assert [sample["reference"] for sample in done.samples] == list(references[:3])
    assert [sample["translation"] for sample in done.samples] == list(sources[:3])


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_as_before_if_a_worker_is_lost_meanwhile(data, model, alone, training):
    class LosesWorkers(FakeScorer):
        def translate(self, model, lines):
            assert not model.training
            raise WorkersLostError([], "connection reset")

    settings, evaluated = tiny(), copy.deepcopy(model).train(training)
    precision = Precision.choose(settings, alone.device)
    with pytest.raises(WorkersLostError):
        Evaluator(settings, data, alone, precision, LosesWorkers(), 100).evaluate(evaluated, step=7)
    assert evaluated.training is training


def test_without_bleu_nothing_is_translated(data, model, alone):
    done = evaluate(data, model, alone, "evaluation.bleu=false")
    assert (done.bleu, done.chrf, done.samples) == (None, None, [])

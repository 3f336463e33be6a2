"""Every way to exchange gradients trains a model, between real processes."""

from statistics import mean

import pytest

from dragoman.events import ExchangeChosen, RunStarted, StepDone
from dragoman.run_folder import RunFolder

from ..processes import train

pytestmark = pytest.mark.system

SETTINGS = ("training.steps=60", "evaluation.every=60", "checkpoint.every=60", "evaluation.bleu=false")


@pytest.mark.parametrize(
    "method",
    [
        ("exchange.method=bf16",),
        ("exchange.method=powersgd", "exchange.powersgd_rank=4"),
        ("exchange.method=local", "exchange.every=4", "exchange.wire_format=int8"),
    ],
    ids=" ".join,
)
def test_a_model_learns_with_every_method_and_fewer_bytes(data, tmp_path, method):
    train(data.path, tmp_path / "run", *SETTINGS, "schedule.learning_rate=0.01", *method)
    for rank in (0, 1):
        events = RunFolder(tmp_path / "run").events(rank)
        (chosen,) = [event for event in events if isinstance(event, ExchangeChosen)]
        assert chosen.method == method[0].partition("=")[2]
        steps = [event for event in events if isinstance(event, StepDone)]
        assert [step.step for step in steps] == list(range(1, 61))
        assert mean(step.loss for step in steps[-10:]) < mean(step.loss for step in steps[:10]) - 0.3
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        plain_bytes = 4 * started.parameters
        assert 0 < mean(step.sent_bytes for step in steps) < 0.6 * plain_bytes

"""Exchange methods: each trains a model in several processes and sends fewer bytes."""

from pathlib import Path
from statistics import mean

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.events import ExchangeChosen, RunStarted, StepDone
from dragoman.run_folder import RunFolder

from ..processes import train_several

pytestmark = pytest.mark.system

SETTINGS = (
    "training.steps=60", "evaluation.every=60", "checkpoint.every=60", "evaluation.bleu=false",
    "schedule.learning_rate=0.01",
)  # fmt: skip
METHODS = {
    "bf16": ("bf16",),
    "powersgd": ("powersgd", "exchange.powersgd_rank=4"),
    "local": ("local", "exchange.every=4", "exchange.wire_format=int8"),
    "local-2-bits": ("local", "exchange.every=8", "exchange.wire_format=int2", "exchange.overlap=4"),
}


@pytest.fixture(scope="module")
def runs(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    train_several(
        data.path,
        folder,
        {name: (*SETTINGS, f"exchange.method={method}", *options) for name, (method, *options) in METHODS.items()},
    )
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_each_method_reduces_the_loss_and_sends_fewer_bytes_than_plain(runs, method):
    for rank in (0, 1):
        events = RunFolder(runs / method).events(rank)
        (chosen,) = [event for event in events if isinstance(event, ExchangeChosen)]
        assert chosen.method == METHODS[method][0]
        steps = [event for event in events if isinstance(event, StepDone)]
        assert [step.step for step in steps] == list(range(1, 61))
        assert mean(step.loss for step in steps[-10:]) < mean(step.loss for step in steps[:10]) - 0.3
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        plain_bytes = 4 * started.parameters
        assert 0 < mean(step.sent_bytes for step in steps) < 0.6 * plain_bytes

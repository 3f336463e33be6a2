"""Tokenizers, and a run to export."""

from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.launch import local_launcher
from dragoman.training.worker import TrainingJob

from ..models import train_tokenizer
from ..small import tiny


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"), "bpe")


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def any_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"), request.param)


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    job = TrainingJob(tiny("checkpoint.average=2"), data.path, folder, 1)
    assert local_launcher.train(job, workers=1, make_scorer=make_scorer) == "finished"
    return folder

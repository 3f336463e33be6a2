"""What all tests share."""

import os
from collections.abc import Generator

import pytest

from dragoman.corpus import demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.recipe import resolve


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    """With FAIL_ON_SKIP set, as in CI, a skipped test is a failure: what was not run proves nothing."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("FAIL_ON_SKIP") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which FAIL_ON_SKIP forbids: {reason}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither use nor fill the user's cache."""
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    """A small data set."""
    folder = tmp_path_factory.mktemp("data")
    made = demo.generate(1500, seed=2, valid=60, test=1)
    for name, pairs in (("train", made.train), ("valid", made.valid)):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train, valid = (Source(name, (folder / f"{name}.tsv",), "tsv") for name in ("train", "valid"))
    corpus = Corpus("demo", Languages("en", "de"), (train,), (valid,), ())
    prepare(corpus, folder / "data", resolve(None, ["tokenizer.vocabulary_size=400"]).settings, workers=1)
    return DataSet(folder / "data")

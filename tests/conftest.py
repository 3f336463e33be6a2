"""Settings and fixtures of all tests, and the way they are spread over processes."""

import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dragoman.corpus import demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.recipe import resolve

from .shared_folder import shared_folder
from .system.hosts import missing_programs, why_not

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GROUPS = {
    # Several workers of their own: two such modules at a time would only wait for each other's cores.
    "hosts": ("test_doctor", "test_elastic", "test_hosts", "test_launch"),
    "browser": ("test_page", "test_watch"),
}
"""Modules in tests/system whose tests run one after the other. Of all other modules any two may run side by side."""

# No deadline: a busy machine is not a fault. `--hypothesis-profile=random` looks for new examples.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Keep ignoring the signals that `nohup` and a shell's `&` ignore, but do not let processes of tests inherit that.

    An ignored signal stays ignored in new processes; one with a handler gets its default back.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_report_header() -> str:
    """One line that names the tests that this machine leaves out, and what they need."""
    reasons = {
        "hosts": why_not(),
        "Slurm and MPI": ", ".join(f"no {program}" for program in missing_programs("sbatch", "munged", "mpirun")),
        "browser": None if shutil.which("chromium") else "no chromium",
    }
    left_out = [f"{group} ({reason})" for group, reason in reasons.items() if reason]
    remedy = "; as root on Debian, make test installs what is missing" if left_out else ""
    if not SHARED_DATA.is_dir():
        left_out.append(f"real corpora (no {SHARED_DATA})")
    return f"tests left out: {', '.join([*left_out, 'GPU (make test-gpu)'])}{remedy}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest where several processes share the tests, so that they end together."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (item.get_closest_marker("system") is None, group_of(item.nodeid) != "hosts"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process a whole module or group at a time, for the fixtures that its tests share."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def group_of(nodeid: str) -> str:
    module = Path(nodeid.partition("::")[0])
    if module.stem == "test_gpu":  # They share no fixture, and compile for most of their time.
        return nodeid
    groups = (name for name, modules in GROUPS.items() if module.parent.name == "system" and module.stem in modules)
    return next(groups, str(module))


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


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Undo what training or a command in an earlier test set: models of tests are too small for several threads."""
    if (torch := sys.modules.get("torch")) is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    """A small data set."""
    return DataSet(shared_folder(tmp_path_factory, "small", make_data) / "data")


def make_data(folder: Path) -> None:
    made = demo.generate(1500, seed=2, valid=60, test=1)
    for name, pairs in (("train", made.train), ("valid", made.valid)):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train, valid = (Source(name, (folder / f"{name}.tsv",), "tsv") for name in ("train", "valid"))
    corpus = Corpus("demo", Languages("en", "de"), (train,), (valid,), ())
    prepare(corpus, folder / "data", resolve(None, ["tokenizer.vocabulary_size=400"]).settings, workers=1)

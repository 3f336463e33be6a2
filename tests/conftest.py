"""Pytest configuration and fixtures of all tests, and their distribution over processes."""

import os
import shutil
import signal
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dragoman.corpus import demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import TOKENIZER_FILE, DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.recipe import resolve

from .shared_folder import shared_folder
from .system.hosts import missing_programs, missing_requirements

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GROUPS = {
    # Each starts several workers: two such modules at the same time would compete for the CPU cores.
    "hosts": (
        "test_doctor",
        "test_elastic",
        "test_elastic_trackers",
        "test_hosts",
        "test_launch",
        "test_run_folders",
        "test_synthesis",
    ),
    "browser": ("test_translate_page", "test_watch"),
}
"""Modules in tests/system that run one after the other. All other modules may run in parallel."""

# No deadline: a test must not fail because the machine is busy. `--hypothesis-profile=random` tries new examples.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Ignore SIGINT and SIGHUP with a handler where `nohup` or a shell's `&` ignores them.

    Child processes inherit ignored signals, but not handlers: in processes of tests the default action applies.
    """
    for signal_number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(signal_number) is signal.SIG_IGN:
            signal.signal(signal_number, lambda *_: None)


def pytest_report_header() -> str:
    """Line that names the groups of tests left out on this machine, and the reasons."""
    reasons = {
        "hosts": missing_requirements(),
        "Slurm and MPI": ", ".join(f"no {program}" for program in missing_programs("sbatch", "munged", "mpirun")),
        "browser": None if shutil.which("chromium") else "no chromium",
        "JavaScript clients": None if shutil.which("npm") else "no npm",
    }
    left_out = [f"{group} ({reason})" for group, reason in reasons.items() if reason]
    remedy = "; as root on Debian, make test installs what is missing" if left_out else ""
    if not SHARED_DATA.is_dir():
        left_out.append(f"real corpora (no {SHARED_DATA})")
    return f"tests left out: {', '.join([*left_out, 'GPU (make test-gpu)'])}{remedy}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first when tests run in parallel, so that all processes end at about the same time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (item.get_closest_marker("system") is None, group_of(item.nodeid) != "hosts"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign entire modules or groups to processes, because their tests share fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def group_of(nodeid: str) -> str:
    """Name of the tests that run in the same process: a group, a module, or a single GPU test."""
    module = Path(nodeid.partition("::")[0])
    if module.stem == "test_gpu":  # GPU tests share no fixtures and spend most of their time compiling.
        return nodeid
    groups = (name for name, modules in GROUPS.items() if module.parent.name == "system" and module.stem in modules)
    return next(groups, str(module))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    """Report skipped tests as failures if FAIL_ON_SKIP is set, as in CI, where every test has to run."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("FAIL_ON_SKIP") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which FAIL_ON_SKIP forbids: {reason}"


@pytest.fixture(autouse=True)
def _isolated_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests from reading or writing the user's cache."""
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def _single_thread() -> None:
    """Reset the thread count that an earlier test may have changed: test models are too small for several threads."""
    if (torch := sys.modules.get("torch")) is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    """Small prepared data set of generated English-German pairs."""
    return DataSet(shared_folder(tmp_path_factory, "small", make_data) / "data")


@pytest.fixture(scope="session")
def old_data(tmp_path_factory: pytest.TempPathFactory, data: DataSet) -> DataSet:
    """Another one of other pairs, with the same tokenizer."""
    make = partial(make_data, seed=5, tokenizer=data.path / TOKENIZER_FILE)
    return DataSet(shared_folder(tmp_path_factory, "old", make) / "data")


def make_data(folder: Path, seed: int = 2, tokenizer: Path | None = None) -> None:
    settings = resolve(None, ["tokenizer.vocabulary_size=400"]).settings
    loaded = None if tokenizer is None else Tokenizer.load(tokenizer)
    prepare(make_corpus(folder, seed), folder / "data", settings, workers=1, tokenizer=loaded)


def make_corpus(folder: Path, seed: int = 2) -> Corpus:
    generated = demo.generate(1500, seed=seed, valid=60, test=1)
    for name, pairs in (("train", generated.train), ("valid", generated.valid)):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train, valid = (Source(name, (folder / f"{name}.tsv",), "tsv") for name in ("train", "valid"))
    return Corpus("demo", Languages("en", "de"), (train,), (valid,), ())

"""What all tests share."""

import os

# The models of the tests are so small that a second thread costs more than it brings. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Generator
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    """With FAIL_ON_SKIP set, as in CI, a skipped test is a failure: what was not run proves nothing."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("FAIL_ON_SKIP") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which FAIL_ON_SKIP forbids: {reason}"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real corpora, where they lie beside the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"there are no real corpora in {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither use nor fill the user's cache."""
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))

"""`dragoman doctor` as users run it on one machine. Several hosts are in `tests/system`."""

import json

import pytest

from dragoman.doctor import step_benchmark, step_windows

from ..command_line import run_command
from ..small import TINY


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    monkeypatch.setattr(step_windows, "WINDOW_S", 0.0)
    monkeypatch.setattr(step_benchmark, "MAX_S", {"cpu": 0.05, "cuda": 0.05})


def test_tables_fit_into_80_columns_and_say_what_is_rough(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = run_command("doctor", "tiny", *TINY, "--quick", "--what-if", "hosts=4,exchange=bf16")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    for words in ("Time of a step (rough: --quick)", "likely range", "largest micro-batch that fits", "hosts=4"):
        assert words in done.stdout


def test_json_has_the_range_the_memory_and_what_makes_it_unsure(data):
    done = run_command("doctor", "tiny", *TINY, "--data", str(data.path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    estimate, host = found["estimate"], found["hosts"]["localhost"]
    assert estimate["step_low_s"] < estimate["step_s"] < estimate["step_high_s"]
    assert estimate["total_low_s"] < estimate["total_s"] < estimate["total_high_s"]
    assert 0 < host["memory_peak_bytes"] < host["memory_bytes"]
    assert host["largest_micro_batch_tokens"] > 200
    assert found["quick"] is False
    assert isinstance(found["doubts"], list)

import pytest

from dragoman.doctor import measurements, step_benchmark
from dragoman.doctor.measurements import BenchmarkRequest, measure
from dragoman.launch.ssh import Machine, SshClient


def test_this_machine_alone_is_benchmarked_without_other_processes(monkeypatch):
    asked = []
    monkeypatch.setattr(measurements, "Agents", pytest.fail)
    monkeypatch.setattr(step_benchmark, "run_request", lambda *arguments: asked.append(arguments) or "result")
    request = BenchmarkRequest("tiny", [])
    found = measure([Machine("localhost", 3)], request, SshClient())
    assert asked == [(request, 3, [3])]
    assert (found.benchmarks, found.links, found.clock_offsets_s) == (
        {"localhost": "result"}, {}, {"localhost": 0.0}
    )  # fmt: skip

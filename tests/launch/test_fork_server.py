"""Workers of elastic runs, which are forked from a process that has imported everything."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ..small import TINY
from .agent_process import AgentProcess


@pytest.fixture
def recipe(tmp_path) -> Path:
    """A recipe that cannot be read yet: a worker waits for it."""
    os.mkfifo(tmp_path / "recipe.toml")
    return tmp_path / "recipe.toml"


@pytest.fixture
def agent(recipe) -> Iterator[AgentProcess]:
    """An agent with an elastic worker."""
    made = AgentProcess()
    made.start("config", str(recipe), elastic=True)
    yield made
    made.close()


def torch_addresses(process: psutil.Process) -> set[str]:
    """Where torch is in the memory of a process: the same only in a process and its forks."""
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return {line.split()[0] for line in maps if "libtorch_cpu" in line}


def test_a_killed_worker_is_forked_again_by_the_process_that_was_there_before(agent, recipe):
    first, fork_server = agent.wait_for_worker(), agent.wait_for_fork_server()
    assert list(agent.request("worker_states")) == ["0"]
    first.kill()
    assert agent.receive() == {"exit": -signal.SIGKILL, "rank": 0, "restart": True, "short_lives": 1}
    second = agent.wait_for_worker()
    assert second.pid != first.pid
    assert second.cmdline()[1:4] == ["-m", "dragoman", "config"]
    assert torch_addresses(second) == torch_addresses(fork_server) != set()
    assert fork_server.num_threads() == 1  # The state of other threads would not survive a fork.
    recipe.write_text("nonsense")  # Its output and exit code are those of any command.
    messages = [agent.receive(), agent.receive()]
    assert messages[0]["stream"] == "err"
    assert str(recipe) in messages[0]["line"]
    assert messages[-1] == {"exit": 2, "rank": 0, "restart": False, "short_lives": 2}


def test_a_worker_outlives_the_fork_server_and_a_new_one_forks_the_next(agent):
    first, fork_server = agent.wait_for_worker(), agent.wait_for_fork_server()
    agent.process.stdin.close()  # An elastic run goes on without its launcher, too.
    fork_server.kill()
    with pytest.raises(psutil.TimeoutExpired):
        first.wait(timeout=0.2)
    first.kill()
    assert agent.receive()["restart"]
    second, successor = agent.wait_for_worker(), agent.wait_for_fork_server()
    assert torch_addresses(second) == torch_addresses(successor) != set()
    agent.process.kill()
    _, alive = psutil.wait_procs([second, successor], timeout=20)
    assert alive == [], "left by a killed agent"


def test_where_no_fork_server_can_run_a_worker_is_started_as_any_command(recipe, tmp_path, monkeypatch):
    site = tmp_path / "sitecustomize.py"
    site.write_text("import os, sys\nif 'dragoman.launch.fork_server' in sys.orig_argv: os._exit(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    agent = AgentProcess()
    agent.start("config", str(recipe), elastic=True)
    assert agent.wait_for_worker().environ()["RANK"] == "0"
    agent.close()


def test_a_run_that_is_stopped_while_everything_is_imported_ends_at_once(agent):
    fork_server = agent.wait_for_fork_server()
    agent.send("stop")
    assert agent.receive() == {"exit": -signal.SIGTERM, "rank": 0, "restart": False, "short_lives": 1}
    agent.process.stdin.close()
    agent.process.wait(timeout=20)
    assert not fork_server.is_running()


def test_a_worker_imports_next_to_nothing_after_the_fork(data, tmp_path):
    """What the fork server has not imported, every worker that comes back would import."""
    settings = [*TINY, "training.steps=2", "checkpoint.average=0"]  # No worker comes back to average checkpoints.
    program = f"""
import importlib, sys
from dragoman.launch.fork_server import MODULES
for module in MODULES:
    importlib.import_module(module)
before = set(sys.modules)
from dragoman import pipeline
pipeline.train("tiny", {str(data.path)!r}, {str(tmp_path / "run")!r}, settings={settings!r})
late = {{name for name in set(sys.modules) - before if name.partition(".")[0] in ("dragoman", "numpy", "torch")}}
print("late:", *sorted(late))
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # GPUs need the compiler, too.
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    late = done.stdout.splitlines()[-1].split()
    assert len(late) < 10, late


@pytest.mark.gpu
def test_a_worker_can_use_gpus_after_the_fork():
    program = """
import importlib, os
from dragoman.launch.fork_server import MODULES
for module in MODULES:
    importlib.import_module(module)
if worker := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
import torch
assert torch.ones(2, device="cuda").sum() == 2
"""
    subprocess.run([sys.executable, "-c", program], timeout=300, check=True)

"""The process that translates shards."""

import subprocess
import sys
from pathlib import Path

from dragoman.synthesis.messages import MessageWriter

FAILING_WORKER = """
from dragoman.synthesis import shard_worker

def fail(*_):
    raise RuntimeError("the device is gone")

shard_worker.ShardEngine._search = fail
shard_worker.main()
"""


def test_a_search_that_fails_ends_the_worker(models: Path) -> None:
    """If only its thread ended, the coordinator would wait for its results for ever."""
    with subprocess.Popen(
        [sys.executable, "-c", FAILING_WORKER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as worker:
        coordinator = MessageWriter(worker.stdin)
        job = b'{"device": "cpu", "decoding": {}}'
        coordinator.send("job", job, models=[{"folder": str(models / "int8"), "digest": ""}], host="here", index=0)
        coordinator.send("shard", b'["a house", "a dog"]', number=0, first_line=0)
        errors = worker.stderr.read().decode()
        assert worker.wait(timeout=60) != 0
    assert "the device is gone" in errors


def test_a_worker_on_a_gpu_needs_no_ctranslate2() -> None:
    """The coordinator exports plain weights for it, and the worker searches on torch."""
    code = """
import sys
sys.modules["ctranslate2"] = None
import dragoman.exporting.exporter
from dragoman.synthesis.translation_job import count_local_gpus
count_local_gpus()
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""Commands that are forked from a benchmark."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from benchmarks.forked_commands import start_forked
command = start_forked(Path(sys.argv[1]), "config", "tiny", before=lambda: time.sleep(600))
print(command.process.pid, flush=True)
time.sleep(600)
"""


def test_a_command_ends_with_the_benchmark_that_has_started_it(tmp_path):
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "output")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as benchmark:
        command = int(benchmark.stdout.readline())
        assert psutil.pid_exists(command)
        benchmark.kill()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(command).wait(timeout=60)

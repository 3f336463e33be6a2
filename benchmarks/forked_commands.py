"""`dragoman` in forked children of one process, which has loaded the libraries already.

On GPU machines a new process needs 10 to 15 seconds to load them. Fork only from a process that has not used the GPU.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import torch._dynamo
import torch._inductor  # noqa: F401 Training loads both when it compiles.

from dragoman import cli
from dragoman.decoding import validation_scorer  # noqa: F401
from dragoman.launch import local_launcher  # noqa: F401
from dragoman.launch.parent_death import die_with

Result = TypeVar("Result")
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class ForkedCommand:
    """A running command, and the file that gets its output."""

    name: str
    process: BaseProcess
    output: Path

    def wait(self, allowed: tuple[int, ...] = (0,)) -> str:
        """Wait for its end and return its output. An exit status that is not allowed ends the benchmark."""
        self.process.join()
        text = self.output.read_text(encoding="utf-8")
        if self.process.exitcode not in allowed:
            raise SystemExit(f"dragoman {self.name} exited with status {self.process.exitcode}: {text[-4000:]}")
        return text


def start_forked(
    output: Path,
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] = lambda: None,
) -> ForkedCommand:
    """Start a command, with more environment variables where given. Its process calls `before` first."""
    words = [str(word) for word in arguments]
    process = FORK.Process(target=_run, args=(os.getpid(), output, words, dict(environment or {}), before))
    process.start()
    return ForkedCommand(words[0], process, output)


def run_forked(output: Path, *arguments: str | Path) -> str:
    """Run a command to its end. Returns its output."""
    return start_forked(output, *arguments).wait()


def _run(parent: int, output: Path, words: list[str], environment: dict[str, str], before: Callable[[], None]) -> None:
    die_with(parent)  # A benchmark that is cut off must not leave runs that keep the GPU busy and their folders locked.
    os.environ.update(environment)
    before()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = ["dragoman", *words]
    cli.main()


def call_forked(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function that uses the GPU in a child, so that this process can still fork. The result is pickled."""
    with ProcessPoolExecutor(1, mp_context=FORK, initializer=die_with, initargs=(os.getpid(),)) as pool:
        return pool.submit(function, *arguments).result()

"""A process that has imported all that workers need, and forks them: a worker that was killed is back at once.

Importing torch takes two seconds of a core, a fork some milliseconds, and forks share the memory of what is imported.
This process runs on one thread and touches no device, port or run folder: such things do not survive a fork.

Standard input is a socket to the agent. Each request names the environment variables of a worker and carries the two
files that become its standard output and error. The reply is its process ID. A worker is forked twice, so that it
becomes a child of the agent: it outlives this process, and the agent learns its exit code as that of any child.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import shlex
import socket
import sys
import time
from pathlib import Path

from dragoman.code_version import dragoman_version
from dragoman.launch.parent_death import die_with

MODULES = (
    "dragoman.cli",
    "dragoman.pipeline",
    "dragoman.decoding.model_choice",
    "dragoman.decoding.validation_scorer",
    "dragoman.distributed.elastic_cluster",
    "dragoman.launch.local_launcher",
    "dragoman.launch.scheduler_environment",
    "numpy.ctypeslib",
    "numpy.ma",
    "numpy.random",
    "torch.utils.tensorboard",
)
"""The modules of a worker, with what they import, on a machine without GPUs: also those that it imports late."""
MAX_REQUEST_BYTES = 1 << 16
REPARENT_POLL_S = 0.001


def main() -> None:
    """Fork workers that run `dragoman` with the arguments in the first one of this process, until the agent is gone."""
    arguments, agent = shlex.split(sys.argv[1]), os.getppid()
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.environ.setdefault("RUST_LOG", "error")  # torchft logs every connection.
    for module in MODULES:
        importlib.import_module(module)
    dragoman_version()
    gc.collect()
    gc.freeze()  # A collection in a worker would copy the pages of all objects.
    while True:
        request, files, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not request:
            return
        worker = _fork_orphan()
        if worker is None:
            requests.close()
            os.dup2(files[0], 1)
            os.dup2(files[1], 2)
            break
        requests.send(str(worker).encode())
        for file in files:
            os.close(file)
    for file in (null, *files):
        os.close(file)
    die_with(agent)
    os.environ.update(json.loads(request))
    sys.argv[1:] = arguments
    _show_command(["-m", "dragoman", *arguments])
    runpy.run_module("dragoman", run_name="__main__", alter_sys=True)


def _fork_orphan() -> int | None:
    """Fork a process whose parent has ended. Returns its process ID, and None in the new process."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            return int(pipe.read())
    os.close(read)
    child = os.getpid()
    if orphan := os.fork():
        os.write(write, str(orphan).encode())
        os._exit(0)
    os.close(write)
    while os.getppid() == child:
        time.sleep(REPARENT_POLL_S)
    return None


def _show_command(arguments: list[str]) -> None:
    """Show these arguments of Python in the list of processes: they need no more space than those at the start."""
    start, end = map(int, Path("/proc/self/stat").read_bytes().decode().rpartition(")")[2].split()[45:47])
    line = b"".join(argument + b"\0" for argument in (ctypes.string_at(start), *map(os.fsencode, arguments)))
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()

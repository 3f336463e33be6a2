"""What runs on each host: it answers the launcher's questions, starts workers there, and passes on what they say.

Questions come on standard input and answers go to standard output, a JSON object a line. Where the input ends, or
nothing comes for a while, the launcher is gone: the workers are asked to stop, so that they save, and are ended if they
do not.
Only the standard library and psutil are imported: an agent is there at once, and light beside the workers.
"""

import contextlib
import hashlib
import json
import os
import platform
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from dragoman import __version__
from dragoman.launch import network_interfaces
from dragoman.launch.link_probe import Receiver, measure
from dragoman.launch.parent_death import die_with

GRACE_S = 30.0
"""How long workers may take to save after they were asked to stop."""
REACH_S = 5.0
POLL_S = 0.1
RELIGHT_S = 1.0
SHORT_LIFE_S = 20.0
MOST_QUICK_DEATHS = 5
"""A worker that dies so often in so short a time will not get better by being started again."""
Message = dict[str, Any]


def code_digest() -> str:
    """A short hash of this installation's source: equal versions may still be different code."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def dragoman_version() -> str:
    return f"{__version__} ({code_digest()})"


class Agent:
    """Does what the launcher asks."""

    def __init__(self, send: Callable[[Message], None], silence_s: float) -> None:
        self._send = send
        self._silence_s = silence_s
        self._folder = Path.home()
        self._listener: socket.socket | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._watchers: list[threading.Thread] = []
        self._elastic = False
        """Whether workers are started again here, and go on without the launcher."""
        self._stopping = self._leaving = False

    def listen_to(self, questions: IO[bytes]) -> None:
        """Answer until the launcher is gone, then see to it that its workers end."""
        for question in self._read(questions):
            serial = question.pop("serial")
            answer = getattr(self, f"answer_{question.pop('ask')}")(**question)
            if answer is not None:
                self._send({"answer": answer, "serial": serial})
        if not self._elastic:
            self.answer_stop()
        for watcher in self._watchers:
            watcher.join()

    def _read(self, questions: IO[bytes]) -> Iterator[Message]:
        """Questions as they come; ends with the input, or when the launcher, who greets now and then, fell silent."""
        pending = b""
        heard_at_s = time.monotonic()
        while not (self._leaving and not any(watcher.is_alive() for watcher in self._watchers)):
            if not select.select([questions], [], [], 1.0)[0]:
                if time.monotonic() - heard_at_s > self._silence_s and not self._elastic:
                    return
                continue
            read = os.read(questions.fileno(), 1 << 16)
            if not read:
                return
            heard_at_s = time.monotonic()
            *lines, pending = (pending + read).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def answer_alive(self) -> None:
        """The launcher is still there."""

    def answer_hello(self, folder: str, make: bool) -> Message:
        """Who this is. From now on relative paths begin at the folder, where there is one; else at the home."""
        wanted = Path(folder).expanduser()
        if make:
            wanted.mkdir(parents=True, exist_ok=True)
        self._folder = wanted if wanted.is_dir() else Path.home()
        os.chdir(self._folder)
        return {
            "dragoman": dragoman_version(),
            "python": platform.python_version(),
            "folder": str(self._folder),
            "at_s": time.time(),
        }

    def answer_clear(self, run: str) -> Message:
        """Ask an earlier launch of the same run, which may have lost its launcher, to save and leave."""
        earlier = earlier_agents(self._folder / run)
        for agent in earlier:
            with contextlib.suppress(psutil.NoSuchProcess):
                agent.terminate()
        deadline_s = time.monotonic() + GRACE_S + 2
        while any(_lives(agent) for agent in earlier) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        return {"cleared": len(earlier)}

    def answer_probe(self, job: Message) -> Message:
        """What this host has for a job. A process of its own finds out: it needs torch, and may fail."""
        return _ask_module("dragoman.launch.host_probe", job)

    def answer_tryout(self, job: Message) -> Message:
        """How fast a recipe's model trains here, found out by a process of its own."""
        return _ask_module("dragoman.doctor.step_benchmark", job)

    def answer_receive(self) -> Message:
        """Let others measure their links to this host."""
        self._receiver = Receiver()
        return {"port": self._receiver.port}

    def answer_measure(self, address: str, port: int) -> Message:
        """The link from this host to another's receiver."""
        try:
            return asdict(measure(address, port))
        except OSError as error:
            return {"problem": str(error)}

    def answer_listen(self) -> Message:
        """Let the others try to reach this host: who comes is told a word that nobody else knows."""
        word = secrets.token_hex(8)
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._listener = socket.create_server(
            ("", 0), family=family, backlog=128, dualstack_ipv6=family == socket.AF_INET6
        )
        threading.Thread(target=_greet, args=(self._listener, word.encode()), daemon=True).start()
        return {"port": self._listener.getsockname()[1], "word": word, "addresses": network_interfaces.addresses()}

    def answer_reach(self, peers: dict[str, Message]) -> dict[str, list[str]]:
        """By which of their addresses this host reaches others."""
        tries = [(name, address, peer) for name, peer in peers.items() for _, address in peer["addresses"]]
        with ThreadPoolExecutor(max_workers=64) as pool:
            answered = list(pool.map(lambda one: _reaches(one[1], one[2]["port"], one[2]["word"].encode()), tries))
        reached: dict[str, list[str]] = {name: [] for name in peers}
        for (name, address, _), did in zip(tries, answered, strict=True):
            if did:
                reached[name].append(address)
        return reached

    def answer_port(self) -> Message:
        """A port that is free here, for the workers to meet."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with socket.create_server(("", 0)) as free:
            return {"port": free.getsockname()[1]}

    def answer_lighthouse(self, port: int) -> None:
        """Keep a lighthouse burning here, for the workers of an elastic world."""
        threading.Thread(target=self._keep_burning, args=(port,), daemon=True).start()

    def _keep_burning(self, port: int) -> None:
        quiet = {**os.environ, "RUST_LOG": "error"}
        while True:
            command = [sys.executable, "-m", "dragoman.launch.lighthouse", str(port)]
            subprocess.run(
                command, env=quiet, stdout=subprocess.DEVNULL, preexec_fn=partial(die_with, os.getpid()), check=False
            )
            time.sleep(RELIGHT_S)

    def answer_start(
        self, words: Sequence[str], worlds: Sequence[dict[str, str]], run: str, elastic: bool = False
    ) -> None:
        """Start a worker for each place in the world that is given to this host."""
        for agent in earlier_agents(self._folder / run):  # The world has gone on without its workers.
            with contextlib.suppress(psutil.NoSuchProcess):
                agent.kill()
                agent.wait(GRACE_S)
        self._elastic, self._stopping = elastic, False
        self._workers, self._watchers = {}, []
        threads = max(1, len(os.sched_getaffinity(0)) // len(worlds))
        for world in worlds:
            log = self._folder / run / f"events-{world['RANK']}.jsonl"
            place = {"OMP_NUM_THREADS": str(threads), **os.environ, **world, "PYTHONUNBUFFERED": "1"}
            watcher = threading.Thread(target=self._watch, args=(words, place, log))
            watcher.start()
            self._watchers.append(watcher)

    def answer_states(self) -> Message:
        """What the kernel says of each worker: running, sleeping, stopped."""
        states = {}
        for rank, worker in self._workers.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                states[str(rank)] = psutil.Process(worker.pid).status()
        return states

    def answer_stop(self) -> None:
        """Ask the workers to end their step, save and leave; end those that do not."""
        self._stopping = True
        for worker in self._workers.values():
            worker.terminate()
        timer = threading.Timer(GRACE_S, self.answer_kill)
        timer.daemon = True
        timer.start()

    def leave(self) -> None:
        """Let the workers save, and leave with them, though the launcher may still be there."""
        self._elastic, self._leaving = False, True
        self.answer_stop()

    def answer_kill(self) -> None:
        self._stopping = True
        for worker in self._workers.values():
            worker.kill()

    def _watch(self, words: Sequence[str], place: dict[str, str], log: Path) -> None:
        """Start a worker, pass on what it says and records, and then its end, as the last word about it.

        The worker of an elastic world is started again when it dies, unless it never lives for long.
        """
        rank, quick_deaths = int(place["RANK"]), 0
        follow = _follow(log, every=self._elastic or rank == 0)
        while True:
            started_at_s = time.monotonic()
            code = self._run_worker(words, place, rank, follow)
            quick_deaths = quick_deaths + 1 if time.monotonic() - started_at_s < SHORT_LIFE_S else 0
            again = self._elastic and code < 0 and not self._stopping and quick_deaths < MOST_QUICK_DEATHS
            self._send({"exit": code, "rank": rank, "again": again})
            if not again:
                return

    def _run_worker(
        self, words: Sequence[str], place: dict[str, str], rank: int, follow: Callable[[], list[str]]
    ) -> int:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dragoman", *words],
            env=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (it takes no lock)
        )
        self._workers[rank] = worker
        assert worker.stdout is not None
        assert worker.stderr is not None
        readers = [
            threading.Thread(target=self._relay, args=(stream, rank, name))
            for name, stream in (("out", worker.stdout), ("err", worker.stderr))
        ]
        for reader in readers:
            reader.start()
        while worker.poll() is None:
            self._tell_events(rank, follow())
            time.sleep(POLL_S)
        for reader in readers:
            reader.join()
        self._tell_events(rank, follow())
        return worker.returncode

    def _relay(self, stream: IO[bytes], rank: int, name: str) -> None:
        for line in stream:
            self._send({"line": line.decode(errors="replace").rstrip(), "rank": rank, "stream": name})

    def _tell_events(self, rank: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._send({"event": line, "rank": rank})


def earlier_agents(run: Path) -> list[psutil.Process]:
    """Other agents on this host whose workers train the same run."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, IndexError):
            if "train" in words and "--out" in words and Path(process.cwd(), words[words.index("--out") + 1]) == run:
                agent = process.parent()
                if agent is not None and agent.pid != os.getpid() and "dragoman.launch.agent" in agent.cmdline():
                    found[agent.pid] = agent
    return list(found.values())


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _follow(log: Path, *, every: bool) -> Callable[[], list[str]]:
    """A function that gives the lines added to a log since it was last called: every one, or the latest alone."""
    offset = log.stat().st_size if log.exists() else 0

    def read() -> list[str]:
        nonlocal offset
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(offset)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        offset += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return lines if every else lines[-1:]

    return read


def _ask_module(name: str, job: Message) -> Message:
    """What a module answers to a job, or why it did not."""
    command = [sys.executable, "-m", name]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode:
        return {"problem": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)}
    return dict(json.loads(done.stdout))


def _greet(listener: socket.socket, word: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            visitor, _ = listener.accept()
            with visitor, contextlib.suppress(OSError):
                visitor.sendall(word)


def _reaches(address: str, port: int, word: bytes) -> bool:
    """Whether the right host answers at an address: private ones, such as those of containers, exist many times."""
    try:
        with socket.create_connection((address, port), timeout=REACH_S) as connection:
            return connection.makefile("rb").read(len(word)) == word
    except OSError:
        return False


def main() -> None:
    silence_s = float(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # Whatever else is printed here must not come between the answers.
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock, contextlib.suppress(OSError):  # Nobody listens any more: the end of the input will tell.
            answers.write(json.dumps(message).encode() + b"\n")

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    agent = Agent(send, silence_s)
    signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    agent.listen_to(sys.stdin.buffer)


if __name__ == "__main__":
    main()

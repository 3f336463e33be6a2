"""The coordinator's connection to a worker: a process on this machine, or on another over ssh. No port is opened."""

import contextlib
import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.code_version import dragoman_version
from dragoman.errors import DragomanError
from dragoman.launch.agents import HostLostError
from dragoman.launch.exit_name import exit_name
from dragoman.launch.ssh import Machine, SshClient, explain
from dragoman.synthesis.messages import SILENCE_S, Message, MessageWriter, receive
from dragoman.synthesis.text_shards import TextShard
from dragoman.synthesis.translation_job import TranslationJob

_FILE_BLOCK_BYTES = 1 << 22


class UnusableHostError(Exception):
    """A host that cannot take part, however often it is tried; the message is the reason with a remedy."""


@dataclass(frozen=True)
class WorkerPlace:
    """One worker of a host."""

    machine: Machine
    index: int = 0
    """Number of the worker on its host, and of its GPU."""

    @property
    def name(self) -> str:
        return self.machine.name if self.index == 0 else f"{self.machine.name}:{self.index}"


@dataclass(frozen=True)
class EngineFiles:
    """A model folder that workers load, and its hash."""

    folder: Path
    digest: str


@dataclass(frozen=True)
class ShardResult:
    """A translated shard, as it is stored."""

    number: int
    content: bytes
    seconds: float
    """Spent on its search and its scores, without waiting."""
    scoring_s: float
    """The part of it for the scores."""
    tokenizing_s: float
    """Spent on its text, perhaps while another shard was searched."""


class WorkerConnection:
    """Starts a worker. Any loss of it raises HostLostError with the reason."""

    def __init__(self, place: WorkerPlace, client: SshClient) -> None:
        self.place = place
        self.machine_description = ""
        """Engine and processor, once it is ready."""
        self._python = client.python
        self._output: deque[str] = deque(maxlen=20)
        self._received_at_s = time.monotonic()
        try:
            # In its own session, so that the terminal's Ctrl-C reaches the coordinator alone.
            self._process = subprocess.Popen(
                client.module(place.machine, "dragoman.synthesis.shard_worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise DragomanError(f"{error.filename} is not on this machine: install it, or check --python.") from None
        assert self._process.stdin is not None
        self._writer = MessageWriter(self._process.stdin)
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()

    def greet(self) -> int:
        """Wait until the worker has started. Returns the number of GPUs of its machine."""
        hello, _ = self._receive()
        here = dragoman_version()
        if hello["dragoman"] != here:
            raise UnusableHostError(
                f"has Dragoman {hello['dragoman']}, this machine has {here}: install the same version on both"
            )
        return int(hello["gpus"])

    def prepare(self, job: TranslationJob, engines: Sequence[EngineFiles]) -> None:
        """Send the models that the host does not have, and wait until the worker has loaded all."""
        is_local = self.place.machine.is_local
        models = [
            {"folder": str(engine.folder.absolute()) if is_local else None, "digest": engine.digest}
            for engine in engines
        ]
        content = json.dumps(job.as_json()).encode()
        self._send("job", content, models=models, host=self.place.machine.name, index=self.place.index)
        for engine in () if is_local else engines:
            if self._receive()[0]["kind"] == "needs_model":
                self._send_files(engine.folder)
        ready, _ = self._receive()
        self.machine_description = ready["machine"]

    def _send_files(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            with path.open("rb") as file:
                while block := file.read(_FILE_BLOCK_BYTES):
                    self._send("file", block, name=path.name)
        self._send("no_more_files")

    def send_shard(self, shard: TextShard) -> None:
        content = json.dumps(shard.lines).encode()
        self._send("shard", content, number=shard.number, first_line=shard.first_line)

    def receive_result(self) -> ShardResult:
        message, content = self._receive()
        times = (message[name] for name in ("seconds", "scoring_s", "tokenizing_s"))
        return ShardResult(message["number"], content, *times)

    def keep_alive(self) -> None:
        """Tell the worker that the coordinator is there, and end the connection if it has been silent for long."""
        with contextlib.suppress(HostLostError):
            self._send("alive")
        if time.monotonic() - self._received_at_s > SILENCE_S:
            self._output.append(f"not responding for {SILENCE_S:.0f} s")
            self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def _send(self, kind: str, content: bytes = b"", **facts: object) -> None:
        try:
            self._writer.send(kind, content, **facts)
        except (OSError, ValueError):
            raise HostLostError(self._why_lost()) from None

    def _receive(self) -> tuple[Message, bytes]:
        assert self._process.stdout is not None
        while True:
            try:
                received = receive(self._process.stdout, self._output.append)
            except (OSError, ValueError):  # Closed by another thread.
                received = None
            if received is None:
                raise HostLostError(self._why_lost())
            self._received_at_s = time.monotonic()
            if received[0]["kind"] == "refusal":
                raise UnusableHostError(received[0]["reason"])
            if received[0]["kind"] != "alive":
                return received

    def _why_lost(self) -> str:
        self._error_reader.join(timeout=1)
        if self.place.machine.is_local and not self._output:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"its process ended with {exit_name(self._process.wait(timeout=1))}"
        return explain(self.place.machine, self._python, "\n".join(self._output))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            self._output.extend(line.decode(errors="replace").rstrip() for line in errors)

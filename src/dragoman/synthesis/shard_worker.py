"""The process on each machine that translates shards. Messages arrive on standard input, replies go to standard output.

When the input ends, or nothing arrives for a while, the coordinator is gone, and the process exits: the coordinator
leases what it had not received to another worker, or to this one when both are started again.
"""

import contextlib
import hashlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dragoman.code_version import dragoman_version
from dragoman.corpus.download_cache import cache_root
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.line_translator import Candidate, LineTranslator
from dragoman.decoding.translator_loading import load
from dragoman.errors import DragomanError
from dragoman.files import draft_path, publish_new_folder
from dragoman.synthesis.messages import KEEPALIVE_S, SILENCE_S, Message, MessageWriter, receive
from dragoman.synthesis.shard_store import ShardHeader, TranslatedLine, pack_shard
from dragoman.synthesis.translation_job import TranslationJob, count_local_gpus, describe_cpu


class ShardWorker:
    """Answers the coordinator until it is gone."""

    def __init__(self, requests: IO[bytes], replies: MessageWriter) -> None:
        self._requests, self._replies = requests, replies
        self._received_at_s = time.monotonic()
        self._shards: queue.Queue[tuple[Message, bytes]] = queue.Queue()

    def run(self) -> None:
        threading.Thread(target=self._keep_alive, daemon=True).start()
        self._replies.send(
            "hello", dragoman=dragoman_version(), gpus=count_local_gpus(), cores=len(os.sched_getaffinity(0))
        )
        try:
            job, content = self._receive()
            engine = ShardEngine.load(self._find_model(job), TranslationJob(**json.loads(content)), job["index"])
        except DragomanError as error:
            self._replies.send("refusal", reason=str(error))
            return
        except ModuleNotFoundError as error:
            self._replies.send("refusal", reason=f"{error.name} is missing: run `pip install 'dragoman[train]'` there")
            return
        self._replies.send("ready", machine=engine.machine)
        threading.Thread(target=self._read_shards, daemon=True).start()
        while True:
            shard, content = self._shards.get()
            started_at_s = time.monotonic()
            translated = engine.translate(json.loads(content), shard["first_line"])
            translating_s = time.monotonic() - started_at_s
            header = ShardHeader(
                shard["number"], shard["first_line"], len(translated), job["host"], engine.machine, translating_s
            )
            self._replies.send("result", pack_shard(header, translated), number=header.number, seconds=translating_s)

    def _receive(self) -> tuple[Message, bytes]:
        while (received := receive(self._requests, lambda _: None)) is not None:
            self._received_at_s = time.monotonic()
            if received[0]["kind"] != "alive":
                return received
        os._exit(0)  # At once, although a shard may be in work: nobody waits for it any more.

    def _read_shards(self) -> None:
        while True:
            self._shards.put(self._receive())

    def _keep_alive(self) -> None:
        while time.monotonic() - self._received_at_s < SILENCE_S:
            with contextlib.suppress(OSError, ValueError):  # The end of the input shows it.
                self._replies.send("alive")
            time.sleep(KEEPALIVE_S)
        os._exit(1)

    def _find_model(self, job: Message) -> Path:
        """The model's folder: the coordinator's own on the same machine, else a copy in the cache."""
        if job["folder"] is not None:
            return Path(str(job["folder"]))
        folder = cache_root() / "models" / str(job["model"])
        if folder.exists():
            self._replies.send("has_model")
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_path(folder)
        draft.mkdir()
        try:
            self._replies.send("needs_model")
            self._receive_files(draft)
            if folder_digest(draft) != job["model"]:
                raise DragomanError("the copy of the model is damaged: run the same command again")
            publish_new_folder(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder

    def _receive_files(self, folder: Path) -> None:
        while (received := self._receive())[0]["kind"] == "file":
            message, content = received
            with (folder / Path(message["name"]).name).open("ab") as file:
                file.write(content)


@dataclass(frozen=True)
class ShardEngine:
    """A translator on a device of this machine."""

    translator: LineTranslator
    job: TranslationJob
    machine: str

    @classmethod
    def load(cls, folder: Path, job: TranslationJob, index: int) -> "ShardEngine":
        """Load the model on the device with this number, of those of the job's kind."""
        device = job.device if job.device == "cpu" else f"{job.device}:{index}"
        translator = load(folder, device, **job.decoding)
        return cls(translator, job, describe_machine(translator, device))

    def translate(self, lines: list[str], first_line: int) -> list[TranslatedLine]:
        """Translate a shard, whose first line has this number."""
        return list(zip(lines, self._candidates(lines, first_line), strict=True))

    def _candidates(self, lines: list[str], first_line: int) -> list[list[Candidate]]:
        if self.job.sampling is None:
            found = self.translator.translate_scored(lines, self.job.n_best)
            return [each.candidates(self.job.n_best) for each in found]

        from dragoman.decoding.sampling import LineSampler, SamplingSettings
        from dragoman.decoding.translator import Translator

        assert isinstance(self.translator, Translator)
        sampler = LineSampler(self.translator, SamplingSettings(**self.job.sampling))
        return sampler.sample(lines, first_line, self.job.n_best)


def describe_machine(translator: LineTranslator, device: str) -> str:
    """Engine and processor: all that rounding depends on."""
    if isinstance(translator, CTranslate2Translator):
        import ctranslate2

        place = describe_cpu() if device == "cpu" else "GPU"
        return f"CTranslate2 {ctranslate2.__version__} {translator.runtime.compute_type}, {place}"

    import torch

    if device == "cpu":
        return f"torch {torch.__version__} with {torch.get_num_threads()} threads, {describe_cpu()}"
    return f"torch {torch.__version__}, {torch.cuda.get_device_name(device)}"


def folder_digest(folder: Path) -> str:
    """Hash of the files of a model folder, by which the copies on other machines are known."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name}\n{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Anything else that is printed here must not mix with the replies.
    ShardWorker(sys.stdin.buffer, MessageWriter(replies)).run()


if __name__ == "__main__":
    main()

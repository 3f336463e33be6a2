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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dragoman.code_version import dragoman_version
from dragoman.corpus.download_cache import cache_root
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.line_translator import Candidate, EncodedLines, Found, LineTranslator
from dragoman.decoding.pair_scoring import ModelPairScorer
from dragoman.decoding.translator_loading import load
from dragoman.errors import DragomanError
from dragoman.files import draft_path, publish_new_folder
from dragoman.prefetch import Prefetcher
from dragoman.synthesis.candidate_scoring import ScoredShard, score_shard, without_scores
from dragoman.synthesis.messages import KEEPALIVE_S, SILENCE_S, Message, MessageWriter, receive
from dragoman.synthesis.shard_store import ShardHeader, pack_shard
from dragoman.synthesis.translation_job import TranslationJob, count_local_gpus, describe_cpu

SWITCH_INTERVAL_S = 1e-4
"""Longest time for which a thread keeps others from running Python."""


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
            folders = [self._find_model(**model) for model in job["models"]]
            engine = ShardEngine.load(folders, TranslationJob(**json.loads(content)), job["index"])
        except DragomanError as error:
            self._replies.send("refusal", reason=str(error))
            return
        except ModuleNotFoundError as error:
            self._replies.send("refusal", reason=f"{error.name} is missing: run `pip install 'dragoman[train]'` there")
            return
        self._replies.send("ready", machine=engine.machine)
        threading.Thread(target=self._read_shards, daemon=True).start()
        # While one shard is searched, the next is encoded and the last is decoded.
        encoded = Prefetcher((engine.encode(*leased) for leased in iter(self._shards.get, None)), 1)
        searched = Prefetcher(map(engine.search, encoded), 1)
        for shard in searched:
            packed = engine.pack(shard, job["host"])
            self._replies.send(
                "result", packed.content, number=shard.number, seconds=packed.translating_s,
                scoring_s=packed.scoring_s, tokenizing_s=packed.tokenizing_s,
            )  # fmt: skip

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

    def _find_model(self, folder: str | None, digest: str) -> Path:
        """A model's folder: the coordinator's own on the same machine, else a copy in the cache."""
        if folder is not None:
            return Path(folder)
        copy = cache_root() / "models" / digest
        if copy.exists():
            self._replies.send("has_model")
        else:
            self._receive_model(copy, digest)
        return copy

    def _receive_model(self, folder: Path, digest: str) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_path(folder)
        draft.mkdir()
        try:
            self._replies.send("needs_model")
            self._receive_files(draft)
            if folder_digest(draft) != digest:
                raise DragomanError("the copy of the model is damaged: run the same command again")
            publish_new_folder(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _receive_files(self, folder: Path) -> None:
        while (received := self._receive())[0]["kind"] == "file":
            message, content = received
            with (folder / Path(message["name"]).name).open("ab") as file:
                file.write(content)


@dataclass(frozen=True)
class EncodedShard:
    """A shard before its translation."""

    number: int
    first_line: int
    lines: list[str]
    encoded: EncodedLines
    encoding_s: float


@dataclass(frozen=True)
class SearchedShard(EncodedShard):
    """A shard after the search, with the tokens of its translations."""

    found: list[Found]
    translating_s: float


@dataclass(frozen=True)
class PackedShard:
    """The content of a shard's file, and the time that it took."""

    content: bytes
    translating_s: float
    """Of the search and the scores."""
    scoring_s: float
    """The part of it for the scores."""
    tokenizing_s: float


@dataclass(frozen=True)
class ShardEngine:
    """Models on a device of this machine. The steps run in threads of their own: only search and scores need a GPU."""

    translator: LineTranslator
    job: TranslationJob
    machine: str
    scorer: ModelPairScorer | None = None
    """Scores translations by both directions, if there is a backward model."""
    device: threading.Lock = field(default_factory=threading.Lock)
    """Held by the step that computes: search and scores share models, and the memory of a GPU."""

    @classmethod
    def load(cls, folders: Sequence[Path], job: TranslationJob, index: int) -> "ShardEngine":
        """Load the model, and the backward model if there is one, on the device with this number."""
        device = job.device if job.device == "cpu" else f"{job.device}:{index}"
        translator = load(folders[0], device, **job.decoding)
        backward = [load(folder, device) for folder in folders[1:]]
        machines = dict.fromkeys(describe_machine(each, device) for each in (translator, *backward))
        scorer = ModelPairScorer(translator, *backward) if backward else None
        return cls(translator, job, "; ".join(machines), scorer)

    def encode(self, shard: Message, content: bytes) -> EncodedShard:
        started_at_s, lines = time.monotonic(), json.loads(content)
        encoded = self.translator.encode_lines(lines)
        return EncodedShard(shard["number"], shard["first_line"], lines, encoded, time.monotonic() - started_at_s)

    def search(self, shard: EncodedShard) -> SearchedShard:
        with self.device:
            started_at_s = time.monotonic()
            found = self._search(shard)
            return SearchedShard(**vars(shard), found=found, translating_s=time.monotonic() - started_at_s)

    def pack(self, shard: SearchedShard, host: str) -> PackedShard:
        """Decode the translations, and score them if there is a backward model."""
        started_at_s = time.monotonic()
        candidates = self._decode(shard)
        decoded_at_s = time.monotonic()
        scored, scoring_s = self._score(shard.lines, candidates)
        scored_at_s = time.monotonic()
        header = ShardHeader(
            shard.number, shard.first_line, len(shard.lines), host, self.machine, shard.translating_s + scoring_s,
            scored.real_scores, scored.mismatched_scores,
        )  # fmt: skip
        content = pack_shard(header, scored.lines)
        packing_s = decoded_at_s - started_at_s + time.monotonic() - scored_at_s
        return PackedShard(content, header.translating_s, scoring_s, shard.encoding_s + packing_s)

    def _score(self, lines: list[str], candidates: list[list[Candidate]]) -> tuple[ScoredShard, float]:
        """The translations with their scores, and the time that the scores took."""
        if self.scorer is None:
            return without_scores(lines, candidates), 0.0
        with self.device:
            started_at_s = time.monotonic()
            scored = score_shard(self.scorer, lines, candidates, self.job.sampled_share)
            return scored, time.monotonic() - started_at_s

    def _decode(self, shard: SearchedShard) -> list[list[Candidate]]:
        joined = (self.translator.join(*line) for line in zip(shard.encoded.segments, shard.found, strict=True))
        return [translation.candidates(self.job.n_best) for translation in joined]

    def _search(self, shard: EncodedShard) -> list[Found]:
        if self.job.sampling is None:
            return self.translator.search_lines(shard.encoded, self.job.n_best)

        from dragoman.decoding.sampling import LineSampler, SamplingSettings
        from dragoman.decoding.translator import Translator

        assert isinstance(self.translator, Translator)
        sampler = LineSampler(self.translator, SamplingSettings(**self.job.sampling))
        return sampler.draw(shard.encoded, shard.first_line, self.job.n_best)


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
    # Shorter than a step of a search, which would wait this long for threads that encode or decode.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Anything else that is printed here must not mix with the replies.
    ShardWorker(sys.stdin.buffer, MessageWriter(replies)).run()


if __name__ == "__main__":
    main()

"""The server: throughput of batching, cost of HTTP, mixed load with hostile clients, and hostile texts.

Speed is measured with random weights at the size of transformer-base: all translations are equally long. Answers are
checked with a small model that is trained for some steps, or with a given model, against the library's translations.

    python -m benchmarks.serve [--model runs/demo/run] [--rounds 5] [--load-seconds 600]
                               [--only speed load hostile fuzz]
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import ctranslate2
import httpx
import psutil
import sentencepiece

from benchmarks.command_line import dragoman_command, make_parser
from benchmarks.hostile_texts import as_files, make_files, make_texts
from benchmarks.reporting import Figure, print_figures
from benchmarks.toy_models import make_random_model, make_trained_model
from dragoman.corpus import demo
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.sentence_splitting import split_sentences
from dragoman.export.exporter import export
from dragoman.serving.limits import Limits
from dragoman.settings import DecodingSettings

CLIENTS = 32
REQUESTS_PER_CLIENT = 2
SINGLE_REQUESTS = 8
"""Requests one at a time in each round, before those of all clients."""
WORDS = 20
"""Words of each sentence in the measurement of speed."""
TRANSLATION_TOKENS = 31
"""Tokens of the translation of such a sentence by the model with random weights."""
SCORE_TOLERANCE = 0.02
"""int8 rounds differently in other batches: of two translations whose scores differ by less, either may be returned.
As a part of the score; 0.05 if that is more."""
COMPARED_BATCHES = 120
REGULAR_CLIENTS = 12
WAYS = ("JSON", "list", "form", "multipart", "file")
"""Ways in which regular clients send texts."""
TIMEOUT_S = 120.0
REQUEST_HEAD = (
    "POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)
SECTIONS = ("speed", "load", "hostile", "fuzz")
HOSTILE_CLIENTS = 4
HOSTILE_PATIENCE_S = 3.0
"""Time after which a hostile client disconnects, and sends the next text."""
HEALTH_INTERVAL_S = 0.02
IDLE_S = 10
"""Time for which /health of the idle server is measured: other work on the machine delays it, too."""


def main() -> None:
    parser = make_parser(__doc__, SECTIONS)
    parser.add_argument("--model", type=Path, help="a trained run or model to check answers with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load-seconds", type=float, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_figures("serve", measure(Path(folder), options))


def measure(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    if "speed" in options.only:
        # A ratio of 0.2 allows 31 tokens for 20 words; random weights always use all of them.
        make_random_model(folder / "random", "transformer-base", DecodingSettings(max_length_ratio=0.2))
        large = export(folder / "random", folder / "large", "ctranslate2")
        yield from asyncio.run(measure_speed(large, options.rounds))
    if options.model is None:
        trained = folder / "trained"
        make_trained_model(trained)
    else:
        trained = find_model(options.model)
    small = export(trained, folder / "small", "ctranslate2")
    if "load" in options.only:
        yield from asyncio.run(measure_load(small, options.load_seconds))
    if "hostile" in options.only:
        yield from asyncio.run(measure_hostile_texts(small))
    if "fuzz" in options.only:
        yield from asyncio.run(fuzz(small))


@contextlib.asynccontextmanager
async def serving(model: Path) -> AsyncIterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A server in its own process: its URL, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(dragoman_command("serve", model, "--port", str(port), "--timeout", str(TIMEOUT_S)))
    try:
        async with httpx.AsyncClient() as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{port}/health")
                    break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def make_sentences(seed: int) -> Iterator[str]:
    """Sentences of exactly 20 words, all different, so that none is cached. No digits: the server protects numbers."""
    rng = random.Random(seed)
    texts = [english for english, _ in demo.generate(500, valid=1, test=1).train]
    words = sorted({word.lower() for text in texts for word in text.split() if word.isalpha()})
    return iter([" ".join(rng.sample(words, WORDS)) + "." for _ in range(1000)])


async def translate(client: httpx.AsyncClient, url: str, text: str) -> None:
    answer = await client.post(f"{url}/translate", json=fields(text), timeout=TIMEOUT_S)
    answer.raise_for_status()


async def translate_in_turn(client: httpx.AsyncClient, url: str, texts: list[str]) -> None:
    """The requests of one client, one after the other."""
    for text in texts:
        await translate(client, url, text)


def fields(text: str) -> dict[str, str]:
    return {"q": text, "source": "en", "target": "de"}


async def measure_speed(model: Path, rounds: int) -> list[Figure]:
    sentences = make_sentences(1)
    library = ctranslate2.Translator(str(model), "cpu")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model / "tokenizer.model"))

    def call_library(text: str) -> None:
        source = pieces.encode(text, out_type=str)
        options = {"beam_size": 4, "length_penalty": 0.6, "max_decoding_length": TRANSLATION_TOKENS}
        [result] = library.translate_batch([source], **options)
        pieces.decode(result.hypotheses[0])

    speedups, server_s, library_s = [], [], []
    async with serving(model) as (url, _), httpx.AsyncClient() as client:
        for _ in range(rounds):
            for _ in range(SINGLE_REQUESTS):
                started_at = time.perf_counter()
                await asyncio.to_thread(call_library, next(sentences))
                library_s.append(time.perf_counter() - started_at)
                started_at = time.perf_counter()
                await translate(client, url, next(sentences))
                server_s.append(time.perf_counter() - started_at)
            single_s = statistics.median(server_s[-SINGLE_REQUESTS:])
            texts = [[next(sentences) for _ in range(REQUESTS_PER_CLIENT)] for _ in range(CLIENTS)]
            started_at = time.perf_counter()
            await asyncio.gather(*(translate_in_turn(client, url, each) for each in texts))
            concurrent_s = (time.perf_counter() - started_at) / (CLIENTS * REQUESTS_PER_CLIENT)
            speedups.append(single_s / concurrent_s)
    speedup = statistics.median(speedups)
    p95_library_s, p95_server_s = (statistics.quantiles(times_s, n=20)[-1] for times_s in (library_s, server_s))
    ratio = p95_server_s / p95_library_s
    text = f"{ratio:.2f} x ({1000 * p95_server_s:.0f} and {1000 * p95_library_s:.0f} ms)"
    return [
        Figure(f"throughput of {CLIENTS} clients against one at a time", f"{speedup:.2f} x", "at least 3", speedup),
        Figure(f"p95 latency of a {WORDS}-word sentence, idle server against the library", text, "at most 1.3", ratio),
    ]


async def measure_load(model: Path, seconds: float) -> list[Figure]:
    """Regular and hostile clients at the same time. Answers to the regular ones are compared with the library's."""
    reference = LibraryReference(model)
    counts: Counter[str] = Counter()
    memory_bytes: list[int] = []
    async with serving(model) as (url, process), httpx.AsyncClient(limits=httpx.Limits(max_connections=100)) as client:
        ends_at = time.monotonic() + seconds
        regular = [
            until_server_ends(regular_client(client, url, reference, counts, ends_at, seed), counts)
            for seed in range(REGULAR_CLIENTS)
        ]
        hostile = [
            until_server_ends(work(client, url, counts, ends_at), counts)
            for work in (invalid_client, oversized_client, slow_client, disconnecting_client)
            for _ in range(2)
        ]
        await asyncio.gather(*regular, *hostile, sample_memory(process, memory_bytes, ends_at))
        crashes = int(process.poll() is not None)
    batch_dependent = {kind: reference.count_batch_dependent(model, kind) for kind in ("int8", "float32")}
    fifth = len(memory_bytes) // 5  # Caches fill in the first fifth.
    early, late = (
        statistics.median(part or memory_bytes) for part in (memory_bytes[fifth : 2 * fifth], memory_bytes[-fifth:])
    )
    growth = late / early - 1
    hostile_requests = sum(counts[kind] for kind in ("invalid", "oversized", "slow", "disconnected"))
    load = f"{seconds / 60:.3g} minutes of mixed load"
    return [
        Figure(f"{load}: requests of regular clients", f"{counts['regular']:,}", "", counts["regular"]),
        Figure(f"{load}: requests of hostile clients", f"{hostile_requests:,}", "", hostile_requests),
        Figure("wrong answers", str(counts["wrong"]), "0", counts["wrong"]),
        Figure(
            "sentences with another translation of about the same score, because int8 rounds by batch",
            f"{counts['tie']} of {counts['sentences']:,}",
            "",
            counts["tie"],
        ),
        *(
            Figure(
                f"the library alone, {compute_type}: translations that differ between batches",
                f"{different} of {compared:,}",
                "0" if compute_type == "float32" else "",
                different,
            )
            for compute_type, (different, compared) in batch_dependent.items()
        ),
        Figure("5xx answers to regular clients", str(counts["5xx"]), "0", counts["5xx"]),
        Figure("wrong status codes for hostile clients", str(counts["wrong status"]), "0", counts["wrong status"]),
        Figure("crashes", str(crashes), "0", crashes),
        Figure("requests without an answer", str(counts["unanswered"]), "0", counts["unanswered"]),
        Figure("memory growth", f"{growth:.1%} ({early / 1e6:.0f} to {late / 1e6:.0f} MB)", "under 5 %", growth),
    ]


async def until_server_ends(work: Coroutine[object, object, None], counts: Counter[str]) -> None:
    """Run a client, which ends early if it gets no answer."""
    try:
        await work
    except (httpx.TransportError, OSError):
        counts["unanswered"] += 1


class LibraryReference:
    """The library's translations of sentences, without a server."""

    def __init__(self, model: Path) -> None:
        self.translator = CTranslate2Translator.load(model, "cpu")
        sentences = [english for english, _ in demo.generate(3000, seed=4, valid=1, test=1).train]
        # The server protects numbers and splits lines into sentences; the library does not. Leave such lines out.
        digits = re.compile(r"\d")
        sentences = [text for text in sentences if not digits.search(text) and len(split_sentences(text)) == 1]
        self.best = dict(zip(sentences, self.translator.translate_scored(sentences), strict=True))

    def is_tie(self, text: str, translation: str) -> bool:
        """True if the model gives a translation about the score of the best one."""
        best = self.best[text].score
        return self._score(text, translation) > best - max(0.05, SCORE_TOLERANCE * abs(best))

    def _score(self, text: str, translation: str) -> float:
        tokenizer = self.translator.tokenizer
        source = (*tokenizer.encode(text), tokenizer.eos_id)
        [log_probabilities] = self.translator.log_probabilities([(source, tokenizer.encode(translation))])
        length_penalty = ((5 + len(log_probabilities)) / 6) ** self.translator.options.length_penalty
        return sum(log_probabilities) / length_penalty

    def count_batch_dependent(self, model: Path, compute_type: str) -> tuple[int, int]:
        """Number of the library's translations that differ between batches, and of all that were compared."""
        runtime = ctranslate2.Translator(str(model), "cpu", compute_type=compute_type)
        own = self.translator
        assert own.languages is not None
        translator = CTranslate2Translator(runtime, own.tokenizer, own.options, own.languages)
        sources = {text: (*own.tokenizer.encode(text), own.tokenizer.eos_id) for text in self.best}
        alone = {source: found[0].tokens for source, found in translator.search(sources.values(), 1).items()}
        rng = random.Random(3)
        different = compared = 0
        for _ in range(COMPARED_BATCHES):
            batch = rng.sample(list(sources.values()), rng.choice([1, 2, 5, 20, 40]))
            found = translator.search_batch(batch)
            different += sum(ranked[0].tokens != alone[source] for source, ranked in zip(batch, found, strict=True))
            compared += len(batch)
        return different, compared


async def regular_client(
    client: httpx.AsyncClient,
    url: str,
    reference: "LibraryReference",
    counts: Counter[str],
    ends_at: float,
    seed: int,
) -> None:
    rng = random.Random(seed)
    sentences = list(reference.best)
    while time.monotonic() < ends_at:
        texts = rng.sample(sentences, rng.choice([1, 1, 1, 5, 20]))
        status, lines = await send_regular(client, url, texts, rng.choice(WAYS))
        counts["regular"] += 1
        if status >= 500:
            counts["5xx"] += 1
        else:
            differing = [pair for pair in zip(texts, lines, strict=False) if reference.best[pair[0]].text != pair[1]]
            ties = sum(reference.is_tie(text, line) for text, line in differing)
            counts["tie"] += ties
            counts["wrong"] += len(lines) != len(texts) or ties < len(differing)
            counts["sentences"] += len(lines)
        await asyncio.sleep(rng.random() * 0.1)


async def send_regular(client: httpx.AsyncClient, url: str, texts: list[str], way: str) -> tuple[int, list[str]]:
    """Send texts in one of the ways of LibreTranslate's clients. Returns the status and the translations."""
    text = "\n\n".join(texts)
    if way == "file":
        form: dict[str, Any] = {"files": {"file": ("a.txt", text.encode())}, "data": {"source": "en", "target": "de"}}
        answer = await client.post(f"{url}/translate_file", timeout=TIMEOUT_S, **form)
        if answer.is_success:
            answer = await client.get(answer.json()["translatedFileUrl"], timeout=TIMEOUT_S)
        return answer.status_code, answer.text.split("\n\n")
    content: dict[str, dict[str, Any]] = {
        "JSON": {"json": fields(text)},
        "list": {"json": {**fields(""), "q": texts}},
        "form": {"data": fields(text)},
        "multipart": {"files": {name: (None, value) for name, value in fields(text).items()}},
    }
    answer = await client.post(f"{url}/translate", timeout=TIMEOUT_S, **content[way])
    translated = answer.json().get("translatedText")
    return answer.status_code, translated if way == "list" else str(translated).split("\n\n")


async def expect_status(
    client: httpx.AsyncClient, url: str, counts: Counter[str], kind: str, status: int, **request: object
) -> None:
    answer = await client.post(f"{url}/translate", timeout=TIMEOUT_S, **request)
    counts[kind] += 1
    counts["wrong status"] += answer.status_code != status


async def invalid_client(client: httpx.AsyncClient, url: str, counts: Counter[str], ends_at: float) -> None:
    """Sends bodies that are not valid JSON, not a valid form, or not a valid request."""
    wrong = [{**fields("x"), "q": 1}, {**fields("x"), "source": "xx"}, {**fields("x"), "target": "../../etc"}]
    bodies = [b"{", b"\xff\xfe", b"[]", b"{}", b"[" * 50_000, *(json.dumps(body).encode() for body in wrong)]
    headers = {"content-type": "application/json"}
    forms = [b"", b"--b", b"--b\r\n" + b"a: b\r\n" * 10_000, b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n']
    form_headers = {"content-type": "multipart/form-data; boundary=b"}
    while time.monotonic() < ends_at:
        for body in bodies:
            await expect_status(client, url, counts, "invalid", 400, content=body, headers=headers)
        for form in forms:
            await expect_status(client, url, counts, "invalid", 400, content=form, headers=form_headers)
        await asyncio.sleep(0.2)


async def oversized_client(client: httpx.AsyncClient, url: str, counts: Counter[str], ends_at: float) -> None:
    """Sends bodies larger than the limit."""
    while time.monotonic() < ends_at:
        with contextlib.suppress(httpx.TransportError):  # The server may close before it has read the whole body.
            await expect_status(client, url, counts, "oversized", 413, json=fields("x" * 5_000_000))
        await asyncio.sleep(0.5)


async def slow_client(_: httpx.AsyncClient, url: str, counts: Counter[str], ends_at: float) -> None:
    """Sends the beginning of a body, and then nothing."""
    port = int(url.rpartition(":")[2])
    while time.monotonic() < ends_at:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST_HEAD.format(path="translate", length=500).encode() + b"{")
        status = await reader.readline()
        counts["slow"] += 1
        counts["wrong status"] += b" 408 " not in status
        writer.close()


async def disconnecting_client(_: httpx.AsyncClient, url: str, counts: Counter[str], ends_at: float) -> None:
    """Sends a large request and disconnects before the answer."""
    rng = random.Random(5)
    port = int(url.rpartition(":")[2])
    while time.monotonic() < ends_at:
        text = " ".join(f"The teacher reads book number {rng.random()}." for _ in range(100))
        body = json.dumps(fields(text)).encode()
        path = rng.choice(["translate", "stream"])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST_HEAD.format(path=path, length=len(body)).encode() + body)
        await writer.drain()
        await asyncio.sleep(rng.random() * 0.1)
        writer.close()
        counts["disconnected"] += 1
        await asyncio.sleep(0.3)


async def sample_memory(process: "subprocess.Popen[bytes]", memory_bytes: list[int], ends_at: float) -> None:
    while time.monotonic() < ends_at and process.poll() is None:
        memory_bytes.append(psutil.Process(process.pid).memory_info().rss)
        await asyncio.sleep(1)


def make_hostile_requests(limits: Limits) -> tuple[int, list[tuple[str, str, dict[str, Any]]]]:
    """The number of kinds of hostile text, and the requests with all of them: kind, path, and content."""
    texts, files = make_texts(limits.max_characters), make_files(limits.max_file_bytes)
    kinds = len(texts) + len(files)
    requests: list[tuple[str, str, dict[str, Any]]] = []
    for kind, text in texts.items():
        for path, source in (("translate", "en"), ("stream", "auto"), ("detect", "en")):
            requests.append((kind, path, {"json": {**fields(text), "source": source}}))
        files |= {f"{kind} in {name}": (name, file) for name, file in as_files(text, limits.max_file_bytes).items()}
    for kind, (name, content) in files.items():
        requests.append((kind, f"file?name={name}&source=en&target=de", {"content": content}))
    return kinds, requests


async def measure_hostile_texts(model: Path) -> list[Figure]:
    """The longest time that /health takes while every kind of hostile text is sent to every endpoint."""
    kinds, requests = make_hostile_requests(Limits())
    statuses: Counter[str] = Counter()
    latencies: list[tuple[float, str]] = []
    remaining, in_progress = iter(requests), dict.fromkeys(range(HOSTILE_CLIENTS), "")
    async with serving(model) as (url, process), httpx.AsyncClient(timeout=HOSTILE_PATIENCE_S) as client:

        async def send_in_turn(number: int) -> None:
            for kind, path, content in remaining:
                in_progress[number] = f"{kind}, {path.partition('&')[0]}"
                try:
                    answer = await client.post(f"{url}/{path}", **content)
                    statuses[str(answer.status_code)[0] + "xx"] += 1
                except httpx.TimeoutException:
                    statuses["given up by the client"] += 1

        polling = threading.Event()
        poller = asyncio.create_task(asyncio.to_thread(poll_health, url, polling, latencies, in_progress))
        await asyncio.sleep(IDLE_S)
        idle_calls = len(latencies)
        await asyncio.gather(*map(send_in_turn, range(HOSTILE_CLIENTS)))
        polling.set()
        await poller
        crashes = int(process.poll() is not None)
    idle_s, _ = max(latencies[:idle_calls])
    longest_s, cause = max(latencies[idle_calls:])
    p99_s = statistics.quantiles((latency_s for latency_s, _ in latencies[idle_calls:]), n=100)[-1]
    print(f"slowest /health during: {cause}", file=sys.stderr)
    answers = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    title = f"{kinds} kinds of hostile text of the largest size, {len(requests)} requests by {HOSTILE_CLIENTS} clients"
    return [
        Figure(f"{title}: longest /health", f"{longest_s:.2f} s", "under 1 s", longest_s),
        Figure(f"p99 of {len(latencies) - idle_calls:,} calls", f"{1000 * p99_s:.0f} ms", "", p99_s),
        Figure(f"longest of {idle_calls:,} calls of the idle server before", f"{1000 * idle_s:.0f} ms", "", idle_s),
        Figure("answers to hostile texts", answers, "no 5xx", dict(statuses)),
        Figure("crashes by hostile texts", str(crashes), "0", crashes),
    ]


def poll_health(
    url: str, ended: threading.Event, latencies: list[tuple[float, str]], in_progress: dict[int, str]
) -> None:
    """Call /health again and again, in a thread: the event loop of the hostile clients must not delay it."""
    with httpx.Client(timeout=TIMEOUT_S) as client:
        while not ended.wait(HEALTH_INTERVAL_S):
            causes = "; ".join(in_progress.values())
            started_at = time.perf_counter()
            client.get(f"{url}/health").raise_for_status()
            latencies.append((time.perf_counter() - started_at, causes))


async def fuzz(model: Path) -> list[Figure]:
    """Requests that schemathesis generates from the OpenAPI description, and the 5xx answers to them."""
    async with serving(model) as (url, _):
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--max-examples", "500",
            "--checks", "not_a_server_error", "--generation-database", "none",
        ]  # fmt: skip
        await asyncio.to_thread(subprocess.run, command, stdout=subprocess.DEVNULL, check=False)
        metrics = httpx.get(f"{url}/metrics").text
    answers = re.findall(r'^dragoman_requests_total\{.*status="(\d+)"\} ([\d.]+)$', metrics, re.MULTILINE)
    total = int(sum(float(count) for _, count in answers))
    failed = int(sum(float(count) for status, count in answers if status.startswith("5")))
    return [Figure(f"5xx answers to {total:,} requests generated by schemathesis", str(failed), "0", failed)]


if __name__ == "__main__":
    main()

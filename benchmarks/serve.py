"""The server: throughput of batching, cost of HTTP, and ten minutes of mixed load with hostile clients.

Speed is measured with random weights at the size of transformer-base: all translations are equally long. Answers are
checked with a small model that is trained for some steps, or with a given model, against the library's translations.

    python -m benchmarks.serve [--model runs/demo/run] [--rounds 5] [--load-seconds 600] [--only speed load fuzz]
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
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import ctranslate2
import httpx
import psutil
import sentencepiece

from benchmarks.command_line import dragoman_command, make_parser
from benchmarks.reporting import Figure, print_figures
from benchmarks.toy_models import make_random_model, make_trained_model
from dragoman.corpus import demo
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.model_choice import find_model
from dragoman.export.exporter import export
from dragoman.serving.sentence_splitting import split_sentences
from dragoman.settings import DecodingSettings

CLIENTS = 32
REQUESTS_PER_CLIENT = 2
SINGLE_REQUESTS = 8
"""Requests one at a time in each round, before those of all clients."""
WORDS = 20
"""Words of each sentence in the measurement of speed."""
TRANSLATION_TOKENS = 31
"""Tokens of the translation of such a sentence by the model with random weights."""
SCORE_TOLERANCE = 0.05
"""int8 rounds differently in other batches: of two translations whose scores differ by less, either may be returned."""
REGULAR_CLIENTS = 12
TIMEOUT_S = 120.0
REQUEST_HEAD = (
    "POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)
SECTIONS = ("speed", "load", "fuzz")


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
    if "fuzz" in options.only:
        yield from asyncio.run(fuzz(small))


@contextlib.asynccontextmanager
async def serving(model: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
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
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
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
    expected = make_expected(model)
    counts: Counter[str] = Counter()
    memory_bytes: list[int] = []
    async with serving(model) as (url, process), httpx.AsyncClient(limits=httpx.Limits(max_connections=100)) as client:
        ends_at = time.monotonic() + seconds
        regular = [regular_client(client, url, expected, counts, ends_at, seed) for seed in range(REGULAR_CLIENTS)]
        hostile = [
            work(client, url, counts, ends_at)
            for work in (invalid_client, oversized_client, slow_client, disconnecting_client)
            for _ in range(2)
        ]
        await asyncio.gather(*regular, *hostile, sample_memory(process, memory_bytes, ends_at))
        crashes = int(not process.is_running())
    fifth = len(memory_bytes) // 5  # Caches fill in the first fifth.
    early, late = (statistics.median(part) for part in (memory_bytes[fifth : 2 * fifth], memory_bytes[-fifth:]))
    growth = late / early - 1
    hostile_requests = sum(counts[kind] for kind in ("invalid", "oversized", "slow", "disconnected"))
    load = f"{seconds / 60:.3g} minutes of mixed load"
    return [
        Figure(f"{load}: requests of regular clients", f"{counts['regular']:,}", "", counts["regular"]),
        Figure(f"{load}: requests of hostile clients", f"{hostile_requests:,}", "", hostile_requests),
        Figure("wrong answers", str(counts["wrong"]), "0", counts["wrong"]),
        Figure("sentences with another translation of about the same score", str(counts["tie"]), "", counts["tie"]),
        Figure("5xx answers to regular clients", str(counts["5xx"]), "0", counts["5xx"]),
        Figure("wrong status codes for hostile clients", str(counts["wrong status"]), "0", counts["wrong status"]),
        Figure("crashes", str(crashes), "0", crashes),
        Figure("memory growth", f"{growth:.1%} ({early / 1e6:.0f} to {late / 1e6:.0f} MB)", "under 5 %", growth),
    ]


def make_expected(model: Path) -> dict[str, list[str]]:
    """Sentences, and the library's translations of each that may be returned, the best one first."""
    translator = CTranslate2Translator.load(model, "cpu")
    sentences = [english for english, _ in demo.generate(3000, seed=4, valid=1, test=1).train]
    # The server protects numbers and splits lines into sentences; the library does not. Leave such lines out.
    digits = re.compile(r"\d")
    return {
        text: [found.text, *(other.text for other in found.alternatives if other.score > found.score - SCORE_TOLERANCE)]
        for text, found in zip(sentences, translator.translate_scored(sentences, 4), strict=True)
        if not digits.search(text) and len(split_sentences(text)) == 1
    }


async def regular_client(
    client: httpx.AsyncClient,
    url: str,
    expected: dict[str, list[str]],
    counts: Counter[str],
    ends_at: float,
    seed: int,
) -> None:
    rng = random.Random(seed)
    sentences = list(expected)
    while time.monotonic() < ends_at:
        texts = rng.sample(sentences, rng.choice([1, 1, 1, 5, 20]))
        answer = await client.post(f"{url}/translate", json=fields("\n\n".join(texts)), timeout=TIMEOUT_S)
        counts["regular"] += 1
        if answer.status_code >= 500:
            counts["5xx"] += 1
        else:
            lines = str(answer.json().get("translatedText")).split("\n\n")
            is_expected = [line in expected[text] for text, line in zip(texts, lines, strict=False)]
            counts["wrong"] += len(lines) != len(texts) or not all(is_expected)
            counts["tie"] += sum(line != expected[text][0] for text, line in zip(texts, lines, strict=False))
        await asyncio.sleep(rng.random() * 0.1)


async def expect_status(
    client: httpx.AsyncClient, url: str, counts: Counter[str], kind: str, status: int, **request: object
) -> None:
    answer = await client.post(f"{url}/translate", timeout=TIMEOUT_S, **request)
    counts[kind] += 1
    counts["wrong status"] += answer.status_code != status


async def invalid_client(client: httpx.AsyncClient, url: str, counts: Counter[str], ends_at: float) -> None:
    """Sends bodies that are not valid JSON or not a valid request."""
    wrong = [{**fields("x"), "q": 1}, {**fields("x"), "source": "xx"}, {**fields("x"), "target": "../../etc"}]
    bodies = [b"{", b"\xff\xfe", b"[]", b"{}", b"[" * 50_000, *(json.dumps(body).encode() for body in wrong)]
    headers = {"content-type": "application/json"}
    while time.monotonic() < ends_at:
        for body in bodies:
            await expect_status(client, url, counts, "invalid", 400, content=body, headers=headers)
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


async def sample_memory(process: psutil.Process, memory_bytes: list[int], ends_at: float) -> None:
    while time.monotonic() < ends_at:
        memory_bytes.append(process.memory_info().rss)
        await asyncio.sleep(1)


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

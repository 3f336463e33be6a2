"""The server: throughput of batching, cost of HTTP, mixed load with hostile clients, and hostile texts.

Speed is measured with random weights at the size of transformer-base: all translations are equally long. Answers are
checked with a small model that is trained for some steps, or with a given model, against the library's translations.

    python -m benchmarks.serve [--model runs/demo/run] [--rounds 5] [--load-seconds 600]
                               [--only speed load hostile fuzz]
"""

import argparse
import asyncio
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ctranslate2
import httpx
import sentencepiece

from benchmarks.command_line import make_parser
from benchmarks.hostile_texts import as_files, make_files, make_texts
from benchmarks.reporting import Figure, print_figures
from benchmarks.running_server import TIMEOUT_S, fields, serving
from benchmarks.server_load import measure_load
from benchmarks.toy_models import make_random_model, make_trained_model
from dragoman.corpus import demo
from dragoman.decoding.model_choice import find_model
from dragoman.exporting.exporter import export
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

"""Mixed load on a server: regular clients whose answers are checked, and hostile ones. Part of `benchmarks.serve`."""

import asyncio
import contextlib
import html
import io
import json
import random
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import ctranslate2
import docx
import httpx
import psutil

from benchmarks.reporting import Figure
from benchmarks.running_server import TIMEOUT_S, fields, serving
from dragoman.corpus import demo
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.sentence_splitting import split_sentences

TRIED_BATCHES, OTHER_SENTENCES = 100, 400
"""Batches in which a sentence is translated whose answer is not the expected one, and the sentences that fill them."""
COMPARED_BATCHES = 120
REGULAR_CLIENTS = 12
REQUEST_HEAD = (
    "POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)


async def measure_load(model: Path, seconds: float) -> list[Figure]:
    """Regular and hostile clients at the same time. Answers to the regular ones are compared with the library's."""
    reference = LibraryReference(model)
    counts: Counter[str] = Counter()
    differing: list[tuple[str, str]] = []
    memory_bytes: list[int] = []
    async with serving(model) as (url, process), httpx.AsyncClient(limits=httpx.Limits(max_connections=100)) as client:
        ends_at = time.monotonic() + seconds
        regular = [
            until_server_ends(regular_client(client, url, reference, counts, differing, ends_at, seed), counts)
            for seed in range(REGULAR_CLIENTS)
        ]
        hostile = [
            until_server_ends(work(client, url, counts, ends_at), counts)
            for work in (invalid_client, oversized_client, slow_client, disconnecting_client)
            for _ in range(2)
        ]
        await asyncio.gather(*regular, *hostile, sample_memory(process, memory_bytes, ends_at))
        crashes = int(process.poll() is not None)
    by_batch = sum(reference.gives(text, answer) for text, answer in differing)
    counts["wrong"] += len(differing) - by_batch
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
            f"sentences with a translation that the library also gives in one of {TRIED_BATCHES} batches",
            f"{by_batch} of {counts['sentences']:,}",
            "",
            by_batch,
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
        sentences = [
            text
            for text in sentences
            if not digits.search(text) and len(split_sentences(text)) == 1 and text.count(" ") > 1
        ]
        self.best = dict(zip(sentences, self.translator.translate(sentences), strict=True))
        self._by_batch: dict[str, set[str]] = {}

    def gives(self, text: str, translation: str) -> bool:
        """True if the library translates a text so, alone or in one of some batches: int8 rounds by batch."""
        if text not in self._by_batch:
            self._by_batch[text] = set(self._translate_in_batches(text))
        return translation in self._by_batch[text]

    def _translate_in_batches(self, text: str) -> Iterator[str]:
        tokenizer, rng = self.translator.tokenizer, random.Random(text)
        source, *others = (
            (*tokenizer.encode(each), tokenizer.eos_id)
            for each in (text, *rng.sample([other for other in self.best if other != text], OTHER_SENTENCES))
        )
        for _ in range(TRIED_BATCHES):
            batch = [source, *rng.sample(others, rng.choice([0, 1, 4, 10, 20, 31]))]
            yield tokenizer.decode(self.translator.search_batch(batch)[0][0].tokens)

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
    differing: list[tuple[str, str]],
    ends_at: float,
    seed: int,
) -> None:
    """Sends sentences, and notes the answers that are not the library's translations."""
    rng = random.Random(seed)
    sentences = list(reference.best)
    while time.monotonic() < ends_at:
        texts = rng.sample(sentences, rng.choice([1, 1, 1, 5, 20]))
        status, lines = await send_regular(client, url, texts, rng.choice(WAYS))
        counts["regular"] += 1
        if status >= 500:
            counts["5xx"] += 1
        else:
            differing += [pair for pair in zip(texts, lines, strict=False) if reference.best[pair[0]] != pair[1]]
            counts["wrong"] += len(lines) != len(texts)
            counts["sentences"] += len(lines)
        await asyncio.sleep(rng.random() * 0.1)


async def send_regular(client: httpx.AsyncClient, url: str, texts: list[str], way: str) -> tuple[int, list[str]]:
    """Send texts in one of the ways of LibreTranslate's clients. Returns the status and the translations."""
    if way in DOCUMENTS:
        make, read = DOCUMENTS[way]
        form: dict[str, Any] = {"files": {"file": (way, make(texts))}, "data": {"source": "en", "target": "de"}}
        answer = await client.post(f"{url}/translate_file", timeout=TIMEOUT_S, **form)
        if answer.is_success:
            answer = await client.get(answer.json()["translatedFileUrl"], timeout=TIMEOUT_S)
        return answer.status_code, read(answer.content) if answer.is_success else []
    text = "\n\n".join(texts)
    content: dict[str, dict[str, Any]] = {
        "JSON": {"json": fields(text)},
        "list": {"json": {**fields(""), "q": texts}},
        "form": {"data": fields(text)},
        "multipart": {"files": {name: (None, value) for name, value in fields(text).items()}},
        "HTML": {"json": {**fields(make_html(texts).decode()), "format": "html"}},
    }
    answer = await client.post(f"{url}/translate", timeout=TIMEOUT_S, **content[way])
    translated = answer.json().get("translatedText")
    if way == "HTML":
        return answer.status_code, read_html(str(translated).encode())
    return answer.status_code, translated if way == "list" else str(translated).split("\n\n")


def make_html(texts: list[str]) -> bytes:
    """A paragraph for each text, with a link around its second word."""
    words = [text.split(" ", 2) for text in texts]
    return "".join(f'<p>{a} <a href="/x">{b}</a> {c}</p>' for a, b, c in words).encode()


def read_html(content: bytes) -> list[str]:
    """The texts of the paragraphs. A paragraph that has not one link is no text."""
    paragraphs = content.decode().removesuffix("</p>").split("</p>")
    complete = [part for part in paragraphs if part.count('<a href="/x">') == part.count("</a>") == 1]
    return [html.unescape(re.sub("<[^>]*>", "", part)) for part in complete]


def make_word(texts: list[str]) -> bytes:
    """A Word document with a paragraph for each text, whose second word is bold."""
    document, content = docx.Document(), io.BytesIO()
    for text in texts:
        first, second, rest = text.split(" ", 2)
        paragraph = document.add_paragraph(f"{first} ")
        paragraph.add_run(second).bold = True
        paragraph.add_run(f" {rest}")
    document.save(content)
    return content.getvalue()


def read_word(content: bytes) -> list[str]:
    """The texts of the paragraphs."""
    return [paragraph.text for paragraph in docx.Document(io.BytesIO(content)).paragraphs]


DOCUMENTS: dict[str, tuple[Callable[[list[str]], bytes], Callable[[bytes], list[str]]]] = {
    "a.txt": (lambda texts: "\n\n".join(texts).encode(), lambda content: content.decode().split("\n\n")),
    "a.html": (make_html, read_html),
    "a.docx": (make_word, read_word),
}
"""Documents by name: how they are made of texts, and how the texts are read again."""
WAYS = ("JSON", "list", "form", "multipart", "HTML", *DOCUMENTS)
"""Ways in which regular clients send texts."""


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

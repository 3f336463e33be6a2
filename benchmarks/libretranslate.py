"""Compatibility with LibreTranslate: the same requests and the same clients against LibreTranslate itself and us.

LibreTranslate is installed into an environment of its own (0.6 GB, some minutes), and serves the same small models.

    python -m benchmarks.libretranslate [--only requests clients]
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.serving.conftest import make_exports

from benchmarks.command_line import dragoman_command, make_parser
from benchmarks.libretranslate_requests import ENGLISH, EXCHANGES, NOT_JSON, RecordedExchange, shape_of
from benchmarks.reporting import Figure, print_figures
from benchmarks.translation_clients import CLIENTS, HTML_CLIENTS, Question
from dragoman.corpus.download_cache import cache_root
from dragoman.corpus.language_detection import language_name

REQUIREMENT = "libretranslate==1.9.6"
SECTIONS = ("requests", "clients")
START_S = 120.0
Answer = tuple[int, Any]
"""Status and shape."""


def main() -> None:
    options = make_parser(__doc__, SECTIONS).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_exports(folder)
        with serving_ours(folder) as ours, serving_theirs(folder) as theirs:
            print_figures("libretranslate", measure(ours, theirs, options.only))


def measure(ours: str, theirs: str, sections: tuple[str, ...]) -> Iterator[Figure]:
    if "requests" in sections:
        yield from measure_requests(ours, theirs)
    if "clients" in sections:
        yield from measure_clients(ours, theirs)


def measure_requests(ours: str, theirs: str) -> Iterator[Figure]:
    alike, recorded, on_purpose = 0, 0, []
    for exchange in EXCHANGES:
        our_answer, their_answer = send(ours, exchange), send(theirs, exchange)
        recorded += _agrees(their_answer, (exchange.status, exchange.shape))
        if _agrees(our_answer, their_answer) or exchange.shape is None:
            alike += 1
        elif our_answer[0] == exchange.ours:
            on_purpose.append(exchange.name)
        else:
            print(f"{exchange.name}: we answer {our_answer}, LibreTranslate {their_answer}", file=sys.stderr)
    total = len(EXCHANGES)
    yield Figure(
        f"{total} requests, good and bad: status and keys as from LibreTranslate; different on purpose; different",
        f"{alike}; {len(on_purpose)}; {total - alike - len(on_purpose)}",
        "; ; 0",
        {"alike": alike, "on_purpose": on_purpose, "different": total - alike - len(on_purpose)},
    )
    yield Figure("answers of LibreTranslate that the tests expect", f"{recorded} of {total}", f"{total}", recorded)


def _agrees(answer: Answer, other: Answer) -> bool:
    """Compare status and shape. LibreTranslate's own pages for unknown paths and methods are HTML."""
    return answer[0] == other[0] and (answer[1] == other[1] or other[1] in (None, NOT_JSON))


def send(url: str, exchange: RecordedExchange) -> Answer:
    arguments = dict(exchange.request)
    response = httpx.request(arguments.pop("method"), url + arguments.pop("path"), timeout=60, **arguments)
    try:
        return response.status_code, shape_of(response.json())
    except ValueError:
        return response.status_code, NOT_JSON


def measure_clients(ours: str, theirs: str) -> Iterator[Figure]:
    for name, ask in {**CLIENTS, **HTML_CLIENTS}.items():
        text = f"<p>{ENGLISH}</p>" if name in HTML_CLIENTS else ENGLISH
        results = {}
        for url in (ours, theirs):
            try:
                results[url] = shape_of(ask(Question(url, text)))
            except httpx.HTTPStatusError as error:
                results[url] = error.response.text
            except RuntimeError as error:
                results[url] = str(error).strip().splitlines()[-1]
        as_theirs = results[ours] == results[theirs]
        measured = "answered" if isinstance(results[ours], dict) else results[ours]
        if not as_theirs and isinstance(results[ours], dict):
            measured += f"; by LibreTranslate: {results[theirs]}"
        yield Figure(f"client {name}", measured, "answered", isinstance(results[ours], dict))


@contextlib.contextmanager
def serving_ours(folder: Path) -> Iterator[str]:
    port = free_port()
    options = ["--port", str(port), "--threads", "1", "--suggestions", folder / "suggestions"]
    with running(dragoman_command("serve", folder / "en-de", folder / "de-en", *options), port, folder, {}) as url:
        yield url


@contextlib.contextmanager
def serving_theirs(folder: Path) -> Iterator[str]:
    python = install()
    home = folder / "home"
    (home / "db").mkdir(parents=True)  # Where it keeps suggestions.
    for direction in ("en-de", "de-en"):
        write_argos_package(folder / direction, home / "packages", direction)
    port = free_port()
    command = [python, "-P", Path(__file__).with_name("libretranslate_server.py"), "--port", str(port), "--suggestions"]
    environment = {"HOME": str(home), "ARGOS_PACKAGES_DIR": str(home / "packages"), "OMP_NUM_THREADS": "1"}
    with running(command, port, home, environment) as url:
        yield url


def install() -> Path:
    """Create LibreTranslate's environment, if it does not exist yet. Returns its interpreter."""
    folder = cache_root() / "peers" / "libretranslate"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.is_file() or stamp.read_text() != REQUIREMENT:
        print(f"installing {REQUIREMENT} in {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, symlinks=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
        stamp.write_text(REQUIREMENT)
    return python


def write_argos_package(export: Path, packages: Path, direction: str) -> None:
    """Install an export as argostranslate would: the model, its tokenizer, and a description."""
    source, target = direction.split("-")
    package = packages / f"translate-{source}_{target}-1_0"
    (package / "model").mkdir(parents=True)
    for name in ("config.json", "model.bin", "shared_vocabulary.json"):
        shutil.copyfile(export / name, package / "model" / name)
    shutil.copyfile(export / "tokenizer.model", package / "sentencepiece.model")
    description = {
        "package_version": "1.0", "argos_version": "1.9", "from_code": source, "from_name": language_name(source),
        "to_code": target, "to_name": language_name(target),
    }  # fmt: skip
    (package / "metadata.json").write_text(json.dumps(description))


@contextlib.contextmanager
def running(command: list[Any], port: int, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """A server in its own process, once it answers."""
    url = f"http://127.0.0.1:{port}"
    with (folder / f"server-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
        )
        try:
            deadline_s = time.monotonic() + START_S
            while not _is_up(url):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(Path(log.name).read_text()[-3000:])
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait()


def _is_up(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").status_code == 200
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()

"""The server as a process: real clients, rude ones among them."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from ..models import LINES
from ..serving.conftest import exports  # noqa: F401 (a fixture)

pytestmark = pytest.mark.system
HEAD = "POST /{place} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"


class Server:
    """A server in a process of its own."""

    def __init__(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "dragoman", "serve", *arguments, "--port", str(self.port), "--threads", "1"]
        self.process = subprocess.Popen([*prefix, *command], stderr=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.port}"
        while self.process.poll() is None and not self.answers():
            time.sleep(0.05)
        assert self.process.poll() is None, self.process.stderr.read()

    def answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health").status_code == 200
        return False

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{self.url}/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return errors


@pytest.fixture(scope="module")
def server(exports: list[Path]) -> Iterator[Server]:  # noqa: F811
    running = Server(*map(str, exports))
    yield running
    errors = running.stop()
    assert "Traceback" not in errors, errors


def wait_until(condition) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute in vain")


def test_libretranslate_s_own_client_works(server: Server) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
    direct = httpx.post(f"{server.url}/translate", json={"q": LINES[0], "source": "en", "target": "de"}).json()
    assert client.translate(LINES[0], "en", "de") == direct["translatedText"]
    assert client.detect("Das ist ein ganz gewöhnlicher deutscher Satz.")[0]["language"] == "de"


def test_many_at_once_get_what_they_would_get_alone(server: Server) -> None:
    def ask(line: str) -> str:
        fields = {"q": line, "source": "en", "target": "de"}
        return str(httpx.post(f"{server.url}/translate", json=fields, timeout=60).json()["translatedText"])

    lines = [f"{line} And {number} more." for number, line in enumerate(LINES * 2)]
    together: dict[str, str] = {}
    threads = [threading.Thread(target=lambda line=line: together.update({line: ask(line)})) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = Server(*[path for path in server.process.args if str(path).endswith("en-de")])
    try:
        fields = ({"q": line, "source": "en", "target": "de"} for line in lines)
        alone = [
            httpx.post(f"{fresh.url}/translate", json=field, timeout=60).json()["translatedText"] for field in fields
        ]
    finally:
        fresh.stop()
    assert [together[line] for line in lines] == alone


def test_one_who_goes_away_frees_the_place(server: Server) -> None:
    for place in ("translate", "stream"):
        with contextlib.ExitStack() as crowd:
            for number in range(8):
                text = " ".join(f"{line} Number {number} of {count}." for count, line in enumerate(LINES * 7))
                body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
                rude = crowd.enter_context(server.connect())
                rude.sendall(HEAD.format(place=place, length=len(body)).encode() + body)
            wait_until(lambda: server.metric("dragoman_requests_under_way") >= 2)  # the question itself is one
        wait_until(lambda: server.metric("dragoman_requests_under_way") <= 1)
        wait_until(lambda: server.metric('dragoman_sentences_waiting{model="en-de"}') == 0)


def test_one_who_says_nothing_is_not_waited_for(server: Server) -> None:
    with server.connect() as silent, server.connect() as slow:
        slow.sendall(HEAD.format(place="translate", length=100).encode() + b"{")
        assert silent.recv(100) == b"", "closed"
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_text_is_sent_sentence_by_sentence(server: Server) -> None:
    text = " ".join(LINES)
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    with server.connect() as client:
        client.sendall(HEAD.format(place="stream", length=len(body)).encode() + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += client.recv(65536)
    frames = re.findall(rb"^[0-9a-f]+\r\n(\{.*\})\n\r\n", received, re.MULTILINE)
    assert len(frames) == len(LINES) + 2, "one for each, one before and one after"


def test_told_to_stop_it_first_answers_what_it_has_begun(exports: list[Path]) -> None:  # noqa: F811
    server = Server(str(exports[0]))
    text = " ".join(f"{line} Part {number}." for number, line in enumerate(LINES * 6))
    answers: list[httpx.Response] = []

    def ask() -> None:
        fields = {"q": text, "source": "en", "target": "de"}
        answers.append(httpx.post(f"{server.url}/translate", json=fields, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: server.metric("dragoman_requests_under_way") >= 2 or answers)
    errors = server.stop()
    asking.join()
    assert answers[0].status_code == 200
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in errors


def test_a_run_is_exported_by_itself_and_a_taken_port_is_a_sentence(exports: list[Path], server: Server) -> None:  # noqa: F811
    model = exports[0].parent / "model-en-de"
    made = Server(str(model))
    try:
        assert httpx.get(f"{made.url}/models").json()[0]["name"] == "model-en-de"
        command = [sys.executable, "-m", "dragoman", "serve", str(exports[0]), "--port", str(made.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "choose another --port" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        made.stop()


def test_the_api_can_be_fuzzed_from_its_own_description(server: Server) -> None:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks", checks,
        "--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--generation-database", "none",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

"""The server as a separate process, with well-behaved and badly behaved clients."""

import asyncio
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
import psutil
import pytest
from benchmarks.reporting import Figure
from benchmarks.server_load import measure_load

from ..models import LINES
from ..serving.conftest import exports  # noqa: F401 (a fixture)

pytestmark = pytest.mark.system
REQUEST_HEAD = (
    "POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)


class Server:
    """A server in a separate process."""

    def __init__(self, *arguments: str, prefix: Sequence[str] = (), python: str | Path = sys.executable) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [python, "-m", "dragoman", "serve", *arguments, "--port", str(self.port), "--threads", "1"]
        self.process = subprocess.Popen([*prefix, *command], stderr=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.port}"
        while self.process.poll() is None and not self.is_up():
            time.sleep(0.05)
        assert self.process.poll() is None, self.process.stderr.read()

    def is_up(self) -> bool:
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
    raise AssertionError("the condition was not met within a minute")


def test_concurrent_requests_get_the_same_translations_as_sequential_ones(server: Server) -> None:
    def ask(line: str) -> str:
        fields = {"q": line, "source": "en", "target": "de"}
        return str(httpx.post(f"{server.url}/translate", json=fields, timeout=60).json()["translatedText"])

    lines = [f"{line} And {number} more." for number, line in enumerate(LINES * 2)]
    concurrent: dict[str, str] = {}
    threads = [threading.Thread(target=lambda line=line: concurrent.update({line: ask(line)})) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = Server(*[path for path in server.process.args if str(path).endswith("en-de")])
    try:
        fields = ({"q": line, "source": "en", "target": "de"} for line in lines)
        sequential = [
            httpx.post(f"{fresh.url}/translate", json=field, timeout=60).json()["translatedText"] for field in fields
        ]
    finally:
        fresh.stop()
    assert [concurrent[line] for line in lines] == sequential


def test_a_client_that_disconnects_frees_its_place(server: Server) -> None:
    for path in ("translate", "stream"):
        with contextlib.ExitStack() as connections:
            for number in range(8):
                text = " ".join(f"{line} Number {number} of {count}." for count, line in enumerate(LINES * 7))
                body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
                connection = connections.enter_context(server.connect())
                connection.sendall(REQUEST_HEAD.format(path=path, length=len(body)).encode() + body)
            wait_until(
                lambda: server.metric("dragoman_requests_under_way") >= 2
            )  # including the request for the metrics
        wait_until(lambda: server.metric("dragoman_requests_under_way") <= 1)
        wait_until(lambda: server.metric('dragoman_sentences_waiting{model="en-de"}') == 0)


def test_a_client_that_sends_no_complete_request_is_disconnected(server: Server) -> None:
    multipart = REQUEST_HEAD.replace("application/json", "multipart/form-data; boundary=b")
    with server.connect() as silent, server.connect() as slow, server.connect() as slow_upload:
        slow.sendall(REQUEST_HEAD.format(path="translate", length=100).encode() + b"{")
        slow_upload.sendall(multipart.format(path="translate_file", length=100).encode() + b"--b")
        assert silent.recv(100) == b"", "closed"
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert slow_upload.recv(100).startswith(b"HTTP/1.1 408")


def test_malformed_requests_leave_no_trace_in_the_log(exports: list[Path]) -> None:  # noqa: F811
    running = Server(str(exports[0]))
    headers = {"content-type": "multipart/form-data; boundary=b"}
    for body in (b"x", b"--bx", b"--b\r\n:\r\n", b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\nx'):
        assert httpx.post(f"{running.url}/translate", content=body, headers=headers).status_code == 400
    assert running.stop().splitlines()[2:] == []


def test_515_idle_connections_do_not_keep_others_out(server: Server) -> None:
    with contextlib.ExitStack() as connections:
        for _ in range(515):
            idle = connections.enter_context(server.connect())
            with contextlib.suppress(ConnectionError):
                idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
        answer = httpx.post(f"{server.url}/translate", json={"q": "x", "source": "en", "target": "de"}, timeout=60)
        assert answer.status_code == 200


def test_a_stream_is_sent_sentence_by_sentence(server: Server) -> None:
    text = " ".join(LINES)
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    with server.connect() as client:
        client.sendall(REQUEST_HEAD.format(path="stream", length=len(body)).encode() + body)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += client.recv(65536)
    frames = re.findall(rb"^[0-9a-f]+\r\n(\{.*\})\n\r\n", received, re.MULTILINE)
    assert len(frames) == len(LINES) + 2, "one per sentence, the header and the end"


def test_a_stopped_server_completes_requests_in_progress(exports: list[Path]) -> None:  # noqa: F811
    server = Server(str(exports[0]))
    text = " ".join(f"{line} Part {number}." for number, line in enumerate(LINES * 6))
    responses: list[httpx.Response] = []

    def ask() -> None:
        fields = {"q": text, "source": "en", "target": "de"}
        responses.append(httpx.post(f"{server.url}/translate", json=fields, timeout=60))

    client = threading.Thread(target=ask)
    client.start()
    wait_until(lambda: server.metric("dragoman_requests_under_way") >= 2 or responses)
    errors = server.stop()
    client.join()
    assert responses[0].status_code == 200
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in errors


def test_a_run_is_exported_automatically_and_a_port_in_use_is_reported(exports: list[Path], server: Server) -> None:  # noqa: F811
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


def test_fuzzing_by_the_openapi_document_finds_no_errors(server: Server) -> None:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks", checks,
        "--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--generation-database", "none",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_load_benchmark_counts_a_server_that_was_killed_as_a_crash(exports: list[Path]) -> None:  # noqa: F811
    earlier = psutil.Process().children()  # Servers of other tests.

    async def kill_server() -> None:
        while not (servers := [child for child in psutil.Process().children() if child not in earlier]):
            await asyncio.sleep(0.05)
        while not any(connection.status == "ESTABLISHED" for connection in servers[0].net_connections()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        servers[0].kill()

    async def measure() -> list[Figure]:
        figures, _ = await asyncio.gather(measure_load(exports[0], seconds=4), kill_server())
        return figures

    measured = {figure.name: figure.value for figure in asyncio.run(measure())}
    assert measured["crashes"] == 1
    assert measured["requests without an answer"] > 0

"""Hostile bytes at every entry point: each answer is a refusal or a translation, never a server error."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.serving.api_keys import ApiKeys, create_api_key
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.suggestions import SuggestionStore

from ..http_servers import STATUS_LINE, connect, exchange, hostile_bytes, mutations, running_server
from .conftest import make_service

JSON, FORM = b"application/json", b"application/x-www-form-urlencoded"
MULTIPART = b"multipart/form-data; boundary=b"
VALID = b'{"q": "The dog.", "source": "en", "target": "de"}'
PO = b'msgid ""\nmsgstr "Plural-Forms: nplurals=2;"\n\nmsgid "A dog"\nmsgstr ""\n'
TMX = b'<tmx><body><tu><tuv xml:lang="en"><seg>A dog</seg></tuv></tu></body></tmx>'
FILE = b"/file?source=en&target=de&name="
FIELD = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
LANGUAGES = FIELD % (b"source", b"auto") + FIELD % (b"target", b"de")
MULTIPART_TEXT = LANGUAGES + FIELD % (b"q", b"The dog.") + FIELD % (b"s", b"Der Hund.") + b"--b--\r\n"
MULTIPART_FILE = LANGUAGES + FIELD % (b'file"; filename="a.txt', b"A dog") + b"--b--\r\n"
TARGETS = [
    (b"POST", b"/translate", JSON, VALID),
    (b"POST", b"/translate", FORM, b"q=The+dog.&source=auto&target=de&api_key=a"),
    (b"POST", b"/translate?q=a&source=en&target=de", b"", b""),
    (b"POST", b"/translate", MULTIPART, MULTIPART_TEXT),
    (b"POST", b"/translate_file", MULTIPART, MULTIPART_FILE),
    (b"POST", b"/suggest", JSON, VALID[:-1] + b', "s": "Der Hund."}'),
    (b"POST", b"/suggest", MULTIPART, MULTIPART_TEXT),
    (b"POST", b"/languages", FORM, b"api_key=a"),
    (b"GET", b"/download_file/abc.a.txt", b"", b""),
    (b"OPTIONS", b"/translate", b"", b""),
    (b"POST", b"/stream", JSON, VALID),
    (b"POST", b"/detect", JSON, b'{"q": "The dog."}'),
    (b"POST", FILE + b"a.txt", b"", b"A dog"),
    (b"POST", FILE + b"a.po", b"", PO),
    (b"POST", FILE + b"a.tmx", b"", TMX),
    *((b"GET", path, b"", b"") for path in (b"/", b"/docs", b"/languages", b"/models", b"/metrics", b"/health")),
]
HEADERS = (
    b"Authorization", b"Host", b"Content-Length", b"X-Forwarded-For", b"Cookie", b"Transfer-Encoding", b"Expect",
    b"Origin", b"Access-Control-Request-Method", b"Access-Control-Request-Headers",
)  # fmt: skip
SEARCH = settings(max_examples=250, suppress_health_check=list(HealthCheck))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request, with hostile bytes in its parts or anywhere."""
    method, target, content_type, body = draw(st.sampled_from(TARGETS))
    body = draw(mutations(body))
    content_type = draw(st.just(content_type) | mutations(content_type))
    target = draw(st.just(target) | mutations(target))
    headers = [(b"Host", b"localhost"), (b"Content-Type", content_type), (b"Content-Length", str(len(body)).encode())]
    extra = draw(st.lists(st.tuples(st.sampled_from(HEADERS), hostile_bytes), max_size=2))
    lines = [b"%s %s HTTP/1.1" % (method, target), *(b"%s: %s" % header for header in [*headers, *extra])]
    request = b"\r\n".join([*lines, b"Connection: close", b"", body])
    return draw(st.just(request) | mutations(request))


@pytest.fixture(scope="module", params=[False, True], ids=["without keys", "with keys"])
def port(
    request: pytest.FixtureRequest, exports: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    keys = None
    if request.param:
        file = tmp_path_factory.mktemp("keys") / "keys"
        create_api_key(file, "alice")
        keys = ApiKeys.read(file)
    suggestions = SuggestionStore(tmp_path_factory.mktemp("suggestions"))
    limits = Limits(read_timeout_s=0.2)
    app = make_app(make_service(exports), limits, keys, Metrics(), origins=["https://a.b"], suggestions=suggestions)
    with running_server(app, read_timeout_s=0.2) as port:
        yield port


@SEARCH
@given(requests())
def test_hostile_bytes_never_cause_a_server_error(
    port: int, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    caplog.clear()
    statuses = [int(status) for status in STATUS_LINE.findall(exchange(port, request_bytes))]
    assert all(status < 500 for status in statuses), request_bytes
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], request_bytes


def test_clients_that_send_their_request_slowly_do_not_keep_others_out(exports: list[Path]) -> None:
    limits = Limits(max_requests=2)
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n" % len(VALID)
    app = make_app(make_service(exports), limits, None, Metrics())
    with running_server(app, read_timeout_s=limits.read_timeout_s) as port, contextlib.ExitStack() as connections:
        for _ in range(8):
            connections.enter_context(connect(port)).sendall(head + b"\r\n" + VALID[:-1])
        answer = exchange(port, head + b"Connection: close\r\n\r\n" + VALID)
    assert answer.startswith(b"HTTP/1.1 200")

"""Real clients of LibreTranslate, and requests as Mastodon and Discourse send them, against a running server."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.translation_clients import CLIENTS, HTML_CLIENTS, KEYLESS_CLIENTS, Answers, NotInstalledError, Question

from dragoman.serving.api_keys import create_api_key

from ..models import LINES
from ..serving.conftest import exports  # noqa: F401 (a fixture)
from .test_serving import Server

pytestmark = pytest.mark.system
ENGLISH = "The teacher reads a very long book in the garden this evening."
TAG = re.compile(r"<[^<>]*>")
POST = (
    f"<p>{LINES[0]}</p><p>{LINES[1]} "
    '<a href="https://a.example/tags/book" class="mention hashtag" rel="tag">#<span>book</span></a><br />'
    f"{LINES[2]} &amp; <code>x &lt; 1</code></p>"
)


@pytest.fixture(scope="module")
def server(exports: list[Path]) -> Iterator[Server]:  # noqa: F811
    running = Server(*map(str, exports))
    yield running
    assert "Traceback" not in running.stop()


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys"


@pytest.fixture(scope="module")
def key(key_file: Path) -> str:
    return create_api_key(key_file, "alice")


@pytest.fixture(scope="module")
def server_with_keys(exports: list[Path], key_file: Path, key: str) -> Iterator[Server]:  # noqa: F811
    running = Server(*map(str, exports), "--keys", str(key_file))
    yield running
    assert "Traceback" not in running.stop()


def ask(client: str, question: Question) -> Answers:
    try:
        return CLIENTS[client](question)
    except NotInstalledError as error:
        pytest.skip(str(error))


def translate(server: Server, text: str, key: str | None = None) -> str:
    fields = {"q": text, "source": "en", "target": "de", "api_key": key}
    return str(httpx.post(f"{server.url}/translate", json=fields).raise_for_status().json()["translatedText"])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_what_it_asks_for(server: Server, client: str) -> None:
    answers = ask(client, Question(server.url, ENGLISH))
    assert answers["translation"] == translate(server, ENGLISH)
    assert answers.get("languages", ["en", "de"]) == ["en", "de"]
    assert answers.get("detected", "en") == "en"


@pytest.mark.parametrize("client", sorted(CLIENTS.keys() - KEYLESS_CLIENTS))
def test_a_client_sends_its_key_where_the_server_looks_for_it(server_with_keys: Server, key: str, client: str) -> None:
    answers = ask(client, Question(server_with_keys.url, LINES[0], key))
    assert answers["translation"] == translate(server_with_keys, LINES[0], key)


def test_translatehtml_keeps_the_tags_around_our_translations(server: Server) -> None:
    answers = ask("translatehtml", Question(server.url, f"<p>{LINES[0]}</p><code>x = 1</code>"))
    assert answers["translation"] == f"<p>{translate(server, LINES[0])}</p><code>x = 1</code>"


@pytest.mark.parametrize("client", HTML_CLIENTS)
def test_a_post_is_translated_with_its_tags(server_with_keys: Server, key: str, client: str) -> None:
    answers = HTML_CLIENTS[client](Question(server_with_keys.url, POST, key))
    assert sorted(TAG.findall(answers["translation"])) == sorted(TAG.findall(POST))
    assert "<code>x &lt; 1</code>" in answers["translation"]
    assert LINES[0] not in answers["translation"]
    assert answers["languages"] == ["en", "de"]


def test_a_post_of_mastodon_with_its_warning_and_poll_gets_a_language_for_each_text(
    server_with_keys: Server, key: str
) -> None:
    """Where it does not know the language of a post, it sends `auto`, and reads the detected language of each text."""
    german = "<p>Der Lehrer liest am Abend ein sehr langes Buch im Garten.</p>"
    english = "<p>The teacher reads a very long book in the garden this evening.</p>"
    body = {"q": [english, german, "Hi.", ""], "source": "auto", "target": "de", "format": "html", "api_key": key}
    answer = httpx.post(f"{server_with_keys.url}/translate", json=body).raise_for_status().json()
    assert len(answer["translatedText"]) == len(answer["detectedLanguage"]) == 4
    assert [detected["language"] for detected in answer["detectedLanguage"]][:2] == ["en", "de"]
    assert answer["translatedText"][1] == german
    assert answer["translatedText"][0] != english


def test_a_wrong_key_gets_the_status_that_mastodon_takes_for_a_spent_quota(server_with_keys: Server) -> None:
    body = {"q": ["x"], "source": "en", "target": "de", "format": "html", "api_key": "wrong"}
    assert httpx.post(f"{server_with_keys.url}/translate", json=body).status_code == 403

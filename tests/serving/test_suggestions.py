"""Suggested translations: accepted, stored durably, and read back by `prepare`."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dragoman.corpus.line_formats import read_jsonl
from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError
from dragoman.serving.api_keys import ApiKeys, create_api_key
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.suggestions import SuggestionStore, _append

from .conftest import make_service
from .test_api import GERMAN, URL

ENGLISH = "The teacher reads a very long book in the garden this evening."
SUGGESTION = {"q": ENGLISH, "s": GERMAN, "source": "en", "target": "de"}


def stored(folder: Path, name: str = "en-de") -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_suggestions_are_refused_unless_there_is_a_folder_for_them(client: TestClient) -> None:
    response = client.post("/suggest", json=SUGGESTION)
    assert response.status_code == 403
    assert response.json() == {"error": "Suggestions are disabled on this server."}
    assert client.get("/frontend/settings").json()["suggestions"] is False


def test_suggestions_become_a_corpus_for_each_language_pair(exports: list[Path], tmp_path: Path) -> None:
    app = make_app(make_service(exports), Limits(), None, Metrics(), suggestions=SuggestionStore(tmp_path / "new"))
    with TestClient(app, base_url=URL) as client:
        assert client.get("/frontend/settings").json()["suggestions"] is True
        assert client.post("/suggest", json=SUGGESTION).json() == {"success": True}
        assert client.post("/suggest", data={**SUGGESTION, "source": "auto", "target": "DE"}).json() == {
            "success": True
        }
        back = {"q": "Zwei\n\tZeilen", "s": "Two\nlines", "source": "de", "target": "en"}
        assert client.post("/suggest", json=back).json() == {"success": True}
        for changes in ({"source": "zz"}, {"target": "../../x"}, {"target": "en"}, {"q": "x" * 20_001}, {"s": ["x"]}):
            assert client.post("/suggest", json={**SUGGESTION, **changes}).status_code == 400, changes
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["de-en.jsonl", "en-de.jsonl"]
    pair = (ENGLISH.encode(), GERMAN.encode())
    assert list(read_jsonl(tmp_path / "new" / "en-de.jsonl", Languages("en", "de"))) == [pair, pair]
    assert list(read_jsonl(tmp_path / "new" / "de-en.jsonl", Languages("de", "en"))) == [(b"Zwei Zeilen", b"Two lines")]


def test_suggestions_need_a_key_where_translations_do(exports: list[Path], tmp_path: Path) -> None:
    key = create_api_key(tmp_path / "keys", "alice")
    keys, store = ApiKeys.read(tmp_path / "keys"), SuggestionStore(tmp_path)
    app = make_app(make_service(exports), Limits(), keys, Metrics(), suggestions=store)
    with TestClient(app, base_url=URL) as client:
        assert client.post("/suggest", json=SUGGESTION).status_code == 401
        assert client.post("/suggest", data={**SUGGESTION, "api_key": key}).status_code == 200


def test_foreign_web_pages_cannot_suggest_anything(exports: list[Path], tmp_path: Path) -> None:
    """A form can be sent to a local server from any page: the page cannot read the answer, but it need not."""
    for origins, accepted in (((), False), (["https://a.example"], True), (["*"], True)):
        app = make_app(
            make_service(exports), Limits(), None, Metrics(), origins=origins, suggestions=SuggestionStore(tmp_path)
        )
        with TestClient(app, base_url=URL) as client:
            for origin, expected in (("https://a.example", accepted), ("http://[", origins == ["*"]), (URL, True)):
                response = client.post("/suggest", data=SUGGESTION, headers={"origin": origin})
                assert response.status_code == (200 if expected else 403), (origins, origin)


def test_a_full_store_refuses_suggestions_and_keeps_what_it_has(exports: list[Path], tmp_path: Path) -> None:
    store = SuggestionStore(tmp_path, max_bytes=300)
    app = make_app(make_service(exports), Limits(), None, Metrics(), suggestions=store)
    with TestClient(app, base_url=URL) as client:
        assert client.post("/suggest", json=SUGGESTION).status_code == 200
        response = client.post("/suggest", json=SUGGESTION)
        assert response.status_code == 503
        assert "full" in response.json()["error"]
    assert len(stored(tmp_path)) == 1


def test_a_full_disk_tears_no_line() -> None:
    """/dev/full behaves like a full disk."""

    with pytest.raises(OSError, match="No space left"):
        _append(Path("/dev/full"), b"x\n")


def test_a_line_that_a_killed_server_left_incomplete_is_dropped(tmp_path: Path) -> None:
    store = SuggestionStore(tmp_path)
    store.add("en", "de", "one", "eins")
    with (tmp_path / "en-de.jsonl").open("ab") as file:
        file.write(b'{"en": "tw')
    store.add("en", "de", "three", "drei")
    assert [record["en"] for record in stored(tmp_path)] == ["one", "three"]


def test_a_folder_that_cannot_be_made_is_the_user_s_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DragomanError, match="choose another"):
        SuggestionStore(tmp_path / "file" / "folder")


def add_many(folder: Path, writer: int, confirmed: "multiprocessing.connection.Connection") -> None:
    store = SuggestionStore(folder)
    for number in range(1_000_000):
        store.add("en", "de", f"{writer} {number} " + "x" * 5000, "y")
        confirmed.send(number)


def test_no_confirmed_suggestion_is_lost_when_servers_that_share_a_folder_are_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(3)]
    writers = [
        context.Process(target=add_many, args=(tmp_path, writer, sender)) for writer, (_, sender) in enumerate(pipes)
    ]
    for writer in writers:
        writer.start()
    for receiver, _ in pipes:
        assert receiver.poll(60)
    time.sleep(0.3)
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    SuggestionStore(tmp_path).add("en", "de", "last", "y")
    found = {record["en"].rstrip("x") for record in stored(tmp_path)}
    for writer, (receiver, _) in enumerate(pipes):
        while receiver.poll():
            assert f"{writer} {receiver.recv()} " in found
    assert "last" in found

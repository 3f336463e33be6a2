"""The API as its clients see it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dragoman.decoding.ctranslate2_translator import ExportedTranslator
from dragoman.serving.app import make_app
from dragoman.serving.limits import Keys, Limits, make_key
from dragoman.serving.metrics import Metrics

from ..models import LINES
from .conftest import make_service

Ask = Callable[..., Any]
KEEPSAKES = "Visit https://example.org/a?b=1, {name}, and pay 1,250.75 by 10:30."


def translate(client: TestClient, q: str | list[str], **fields: Any) -> Any:
    answer = client.post("/translate", json={"q": q, "source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_sentence_is_what_the_library_says(client: TestClient, exports: list[Path]) -> None:
    library = ExportedTranslator.load(exports[0], "cpu")
    for line in LINES[:5]:
        assert translate(client, line) == {"translatedText": library.translate([line])[0]}


def test_several_texts_and_alternatives(client: TestClient) -> None:
    one = translate(client, LINES[0], alternatives=2)
    assert len(one["alternatives"]) == 2
    assert one["translatedText"] not in one["alternatives"]
    many = translate(client, LINES[:3], alternatives=1)
    assert many["translatedText"] == [translate(client, line)["translatedText"] for line in LINES[:3]]
    assert [len(others) for others in many["alternatives"]] == [1, 1, 1]
    assert translate(client, []) == {"translatedText": []}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*LINES[:6], "", " ", "\n", "\r\n", "\n\n\t", "x\u2028y"]), max_size=6))
def test_the_shape_of_a_text_is_kept(client: TestClient, parts: list[str]) -> None:
    text = "".join(parts)
    translated = translate(client, text)["translatedText"]
    shape = re.compile(r"[^\S ]+")
    assert shape.findall(translated) == shape.findall(text)


def test_addresses_placeholders_and_numbers_survive_a_model_that_says_nonsense(client: TestClient) -> None:
    translated = translate(client, KEEPSAKES)["translatedText"]
    for kept in ("https://example.org/a?b=1", "{name}", "1,250.75", "10:30"):
        assert kept in translated
    assert translated != KEEPSAKES


def test_what_has_no_words_stays_as_it_is(client: TestClient) -> None:
    text = "***\n\nhttps://example.org\n\n12:30 🐪\n{name}"
    assert translate(client, text)["translatedText"] == text


def test_forms_are_understood_as_libretranslate_s_clients_send_them(client: TestClient) -> None:
    form = {"q": LINES[0], "source": "en", "target": "de", "alternatives": "1", "format": "text"}
    answer = client.post("/translate", data=form)
    assert answer.json()["translatedText"] == translate(client, LINES[0])["translatedText"]
    assert len(answer.json()["alternatives"]) == 1


def test_languages_and_models_are_listed(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    assert [model["name"] for model in client.get("/models").json()] == ["en-de", "de-en"]


def test_the_language_is_found_out_where_that_can_be_said(client: TestClient) -> None:
    german = "Der Lehrer liest am Abend ein sehr langes Buch im Garten."
    guess = client.post("/detect", json={"q": german}).json()[0]
    assert guess["language"] == "de"
    assert 50 < guess["confidence"] <= 100
    assert client.post("/detect", json={"q": "42!"}).json() == []
    found = translate(client, german, source="auto", target="en")
    assert found["detectedLanguage"]["language"] == "de"
    several = client.post("/translate", json={"q": [german, "", "42"], "source": "auto", "target": "en"}).json()
    assert [guess["language"] for guess in several["detectedLanguage"]] == ["de", "de", "de"]
    assert len(several["translatedText"]) == 3
    for text, reason in (
        ("42", "cannot be told"),
        ("Это предложение написано по-русски.", "No model here translates ru"),
    ):
        answer = client.post("/translate", json={"q": text, "source": "auto", "target": "de"})
        assert answer.status_code == 400
        assert reason in answer.json()["error"]


def test_a_stream_gives_a_line_for_each_sentence(client: TestClient) -> None:
    text = f"{LINES[0]} {LINES[1]}\n\n{LINES[2]}"
    fields = {"q": text, "source": "en", "target": "de", "alternatives": 2, "confidence": True}
    answer = client.post("/stream", json=fields)
    head, *parts, end = map(json.loads, answer.text.splitlines())
    assert head == {"model": "en-de", "source": "en", "target": "de", "detected": None}
    assert end["done"]
    assert end["sentences"] == 3
    assert [part["source"] for part in parts] == LINES[:3]
    assert "".join(part["text"] + part["glue"] for part in parts) == translate(client, text)["translatedText"]
    for part in parts:
        assert len(part["alternatives"]) == 2
        if part["words"]:
            assert " ".join(word["text"] for word in part["words"]) == part["text"]
            assert all(0 <= word["confidence"] <= 1 for word in part["words"])
    assert any(part["words"] for part in parts), "else this shows nothing"


def test_files_come_back_translated(client: TestClient) -> None:
    place = {"source": "en", "target": "de"}
    answer = client.post("/file", params={"name": "a.TXT", **place}, content=f"{LINES[0]}\n\n{LINES[1]}\n".encode())
    assert answer.status_code == 200
    assert answer.text == translate(client, f"{LINES[0]}\n\n{LINES[1]}\n")["translatedText"]
    catalogue = 'msgid ""\nmsgstr ""\n\nmsgid "Hi {name}"\nmsgstr ""\n'
    answer = client.post("/file", params={"name": "x.po", **place}, content=catalogue)
    assert "{name}" in answer.text.rpartition("msgstr")[2]
    for name, content, reason in (
        ("x.exe", b"", "does not end in .txt"),
        ("../../etc/passwd", b"", "does not end in"),
        ("x.txt", b"\xff", "not UTF-8"),
    ):
        answer = client.post("/file", params={"name": name, **place}, content=content)
        assert answer.status_code == 400
        assert reason in answer.json()["error"]


def test_two_models_of_one_direction_can_be_told_apart(exports: list[Path]) -> None:
    app = make_app(make_service([exports[0], exports[0]]), Limits(), None, Metrics())
    with TestClient(app) as client:
        assert [model["name"] for model in client.get("/models").json()] == ["en-de", "en-de-2"]
        assert translate(client, LINES[0], model="en-de-2")
        answer = client.post("/translate", json={"q": "x", "source": "en", "target": "de", "model": "other"})
        assert answer.status_code == 400
        assert "en-de-2" in answer.json()["error"]


def test_regions_and_case_do_not_keep_a_model_from_being_found(client: TestClient) -> None:
    plain = translate(client, LINES[0])
    assert translate(client, LINES[0], source="EN", target="de-AT") == plain
    assert client.post("/translate", json={"q": "x", "source": "en", "target": "en-GB"}).status_code == 400


SOUND = {"q": "x", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"q": "\\ud800", "source": "en", "target": "de"}', 400, "not JSON in UTF-8"),
        (b"[]", 400, "body"),
        (b"{}", 400, "q: field required; source: field required; target: field required."),
        (json.dumps({**SOUND, "q": 7}).encode(), 400, "q: "),
        (json.dumps({**SOUND, "q": [[]]}).encode(), 400, "q: "),
        (json.dumps({**SOUND, "q": ["x"] * 65}).encode(), 400, "q: "),
        (json.dumps({**SOUND, "target": "../.."}).encode(), 400, "target: "),
        (json.dumps({**SOUND, "target": "fr"}).encode(), 400, "choose one of en to de"),
        (json.dumps({**SOUND, "alternatives": -1}).encode(), 400, "alternatives: "),
        (json.dumps({**SOUND, "format": "html"}).encode(), 400, "format: "),
        (json.dumps({**SOUND, "q": "x" * 20_001}).encode(), 413, "send it in parts"),
        (b" " * 300_000, 413, "send it in parts"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(client: TestClient, body: bytes, status: int, reason: str) -> None:
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert reason in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_other_types_methods_and_places_are_refused(client: TestClient) -> None:
    assert client.post("/translate", content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    assert client.get("/translate").status_code == 405
    assert client.get("/translate").headers["allow"] == "POST"
    for place in ("/page/../app.py", "/..%2f..%2fetc/passwd", "/page.css/x", "/nothing"):
        answer = client.get(place)
        assert answer.status_code == 404
        assert "/docs lists what there is" in answer.json()["error"]


def test_every_answer_has_safe_headers(client: TestClient) -> None:
    for place in ("/", "/docs", "/page.js", "/nothing", "/languages"):
        headers = client.get(place).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_keys_open_the_door_and_nothing_else_does(exports: list[Path], tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys", "alice")
    app = make_app(make_service(exports), Limits(), Keys.read(tmp_path / "keys"), Metrics())
    with TestClient(app) as client:
        assert client.post("/translate", json=SOUND).status_code == 401
        assert client.post("/stream", json=SOUND).status_code == 401
        assert client.post("/detect", json={"q": "x"}).status_code == 401
        assert client.post("/file?name=a.txt&source=en&target=de", content=b"x").status_code == 401
        assert client.post("/translate", json={**SOUND, "api_key": "wrong"}).status_code == 403
        assert client.post("/translate", json={**SOUND, "api_key": key}).status_code == 200
        bearer = {"authorization": f"Bearer {key}"}
        assert client.post("/translate", json=SOUND, headers=bearer).status_code == 200
        assert client.post("/file?name=a.txt&source=en&target=de", content=b"x", headers=bearer).status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/frontend/settings").json()["asksForKeys"] is True


def test_who_asks_too_often_is_told_how_long_to_wait(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(requests_per_minute=2), None, Metrics())
    with TestClient(app) as client:
        answers = [client.post("/translate", json=SOUND) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0


def test_a_full_house_is_said_at_once_but_health_is_always_answered(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(max_requests=0), None, Metrics())
    with TestClient(app) as client:
        answer = client.post("/translate", json=SOUND)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/health").json() == {"status": "ok"}
    waiting = make_app(make_service(exports), Limits(max_waiting=0), None, Metrics())
    with TestClient(waiting) as client:
        assert client.post("/translate", json=SOUND).status_code == 503


def test_what_takes_too_long_is_ended(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(timeout_s=0.001), None, Metrics())
    with TestClient(app) as client:
        answer = client.post("/translate", json={**SOUND, "q": " ".join(LINES)})
        assert answer.status_code == 503
        assert "longer than 0.001 s" in answer.json()["error"]


def test_metrics_count_what_happened(client: TestClient) -> None:
    translate(client, " ".join(LINES[:7]))
    client.get("/nothing")
    shown = client.get("/metrics").text
    assert 'dragoman_requests_total{path="/translate",status="200"} 1.0' in shown
    assert 'dragoman_requests_total{path="other",status="404"} 1.0' in shown
    assert 'dragoman_batch_sentences_sum{model="en-de"} 7.0' in shown
    assert f'dragoman_characters_total{{model="en-de"}} {len(" ".join(LINES[:7]))}.0' in shown


def test_the_description_names_every_call(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/translate", "/stream", "/file", "/detect", "/languages", "/models", "/health", "/metrics",
    }  # fmt: skip
    page = client.get("/docs").text
    for path, operations in description["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in page

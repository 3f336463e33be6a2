"""The HTTP API as its clients see it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.serving.api_keys import ApiKeys, create_api_key
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics

from ..models import LINES
from .conftest import make_service

URL = "http://127.0.0.1"
PROTECTED = "Visit https://example.org/a?b=1, {name}, and pay 1,250.75 by 10:30."


def translate(client: TestClient, q: str | list[str], **fields: Any) -> Any:
    response = client.post("/translate", json={"q": q, "source": "en", "target": "de", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_sentence_is_translated_as_by_the_library(client: TestClient, exports: list[Path]) -> None:
    library = CTranslate2Translator.load(exports[0], "cpu")
    for line in LINES[:5]:
        assert translate(client, line) == {"translatedText": library.translate([line])[0]}


def test_a_list_of_texts_gives_lists_of_translations_and_alternatives(client: TestClient) -> None:
    one = translate(client, LINES[0], alternatives=2)
    assert len(one["alternatives"]) == 2
    assert one["translatedText"] not in one["alternatives"]
    many = translate(client, LINES[:3], alternatives=1)
    assert many["translatedText"] == [translate(client, line)["translatedText"] for line in LINES[:3]]
    assert [len(others) for others in many["alternatives"]] == [1, 1, 1]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*LINES[:6], "", " ", "\n", "\r\n", "\n\n\t", "x\u2028y"]), max_size=6))
def test_line_breaks_of_a_text_are_preserved(client: TestClient, parts: list[str]) -> None:
    text = "".join(parts) or LINES[0]
    translated = translate(client, text)["translatedText"]
    line_breaks = re.compile(r"[^\S ]+")
    assert line_breaks.findall(translated) == line_breaks.findall(text)


def test_urls_placeholders_and_numbers_are_preserved_by_a_model_that_translates_badly(client: TestClient) -> None:
    translated = translate(client, PROTECTED)["translatedText"]
    for span in ("https://example.org/a?b=1", "{name}", "1,250.75", "10:30"):
        assert span in translated
    assert translated != PROTECTED


def test_text_without_words_is_unchanged(client: TestClient) -> None:
    text = "***\n\nhttps://example.org\n\n12:30 🐪\n{name}"
    assert translate(client, text)["translatedText"] == text


def test_a_form_works_as_sent_by_libretranslate_s_clients(client: TestClient) -> None:
    form = {"q": LINES[0], "source": "en", "target": "de", "alternatives": "1", "format": "text"}
    response = client.post("/translate", data=form)
    assert response.json()["translatedText"] == translate(client, LINES[0])["translatedText"]
    assert len(response.json()["alternatives"]) == 1


def test_languages_and_models_are_listed(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["de", "en"]},
    ]
    assert [model["name"] for model in client.get("/models").json()] == ["en-de", "de-en"]


GERMAN = "Der Lehrer liest am Abend ein sehr langes Buch im Garten."
RUSSIAN = "Это предложение написано на русском языке, и его никто здесь не переводит."


def test_the_source_language_is_detected(client: TestClient) -> None:
    detected = client.post("/detect", json={"q": GERMAN}).json()[0]
    assert detected["language"] == "de"
    assert 50 < detected["confidence"] <= 100
    response = translate(client, GERMAN, source="auto", target="en")
    assert response["detectedLanguage"]["language"] == "de"
    assert response["translatedText"] == translate(client, GERMAN, source="de", target="en")["translatedText"]


def test_a_language_that_cannot_be_detected_is_english_without_confidence(client: TestClient) -> None:
    unknown = {"language": "en", "confidence": 0.0}
    assert client.post("/detect", json={"q": "42!"}).json() == [unknown]
    short = translate(client, "Hi.", source="auto")
    assert short == {**translate(client, "Hi."), "detectedLanguage": unknown}
    assert translate(client, "Hi.", source="auto", target="en")["translatedText"] == "Hi."


def test_a_text_in_the_target_language_is_unchanged(client: TestClient) -> None:
    response = translate(client, GERMAN, source="auto")
    assert response["translatedText"] == GERMAN
    assert response["detectedLanguage"]["language"] == "de"
    assert translate(client, GERMAN, source="de", alternatives=2) == {"translatedText": GERMAN, "alternatives": []}
    assert client.post("/translate", json={"q": "x", "source": "zz", "target": "zz"}).status_code == 400


def test_a_detected_language_that_no_model_translates_leaves_the_text_unchanged(client: TestClient) -> None:
    response = translate(client, RUSSIAN, source="auto")
    assert response["translatedText"] == RUSSIAN
    assert response["detectedLanguage"]["language"] == "ru"
    stated = client.post("/translate", json={"q": RUSSIAN, "source": "ru", "target": "de"})
    assert stated.status_code == 400
    assert "No model translates ru" in stated.json()["error"]


@pytest.mark.parametrize("source", ["auto", "en", "es"])
@pytest.mark.parametrize("text", ["Hi.", "The teacher reads a long book in the garden every evening."])
def test_a_target_that_is_not_served_is_named(client: TestClient, source: str, text: str) -> None:
    response = client.post("/translate", json={"q": text, "source": source, "target": "es"})
    assert response.status_code == 400
    assert response.json()["error"].startswith("No model translates into es: choose one of en to de")


def test_no_text_of_a_list_fails_the_others(client: TestClient) -> None:
    texts = [LINES[0], GERMAN, RUSSIAN, "Hi.", "42", "", "\n"]
    response = translate(client, texts, source="auto")
    assert response["translatedText"][0] == translate(client, LINES[0])["translatedText"]
    assert response["translatedText"][1:3] == [GERMAN, RUSSIAN]
    assert response["translatedText"][4:] == ["42", "", "\n"]
    languages = [detected["language"] for detected in response["detectedLanguage"]]
    assert languages[:3] == ["en", "de", "ru"]
    assert len(languages) == len(texts)


def test_a_stream_has_one_line_per_sentence(client: TestClient) -> None:
    text = f"{LINES[0]} {LINES[1]}\n\n{LINES[2]}"
    fields = {"q": text, "source": "en", "target": "de", "alternatives": 2, "confidence": True}
    response = client.post("/stream", json=fields)
    header, *sentences, end = map(json.loads, response.text.splitlines())
    assert header == {"model": "en-de", "source": "en", "target": "de", "via": None, "detected": None}
    assert end["done"]
    assert end["sentences"] == 3
    assert [sentence["source"] for sentence in sentences] == LINES[:3]
    assert (
        "".join(sentence["text"] + sentence["glue"] for sentence in sentences)
        == translate(client, text)["translatedText"]
    )
    for sentence in sentences:
        assert len(sentence["alternatives"]) == 2
        if sentence["words"]:
            assert " ".join(word["text"] for word in sentence["words"]) == sentence["text"]
            assert all(0 <= word["confidence"] <= 1 for word in sentence["words"])
    assert any(sentence["words"] for sentence in sentences), "otherwise this test checks nothing"


def test_files_are_translated_in_their_own_format(client: TestClient) -> None:
    languages = {"source": "en", "target": "de"}
    response = client.post(
        "/file", params={"name": "a.TXT", **languages}, content=f"{LINES[0]}\n\n{LINES[1]}\n".encode()
    )
    assert response.status_code == 200
    assert response.text == translate(client, f"{LINES[0]}\n\n{LINES[1]}\n")["translatedText"]
    catalog = 'msgid ""\nmsgstr ""\n\nmsgid "Hi {name}"\nmsgstr ""\n'
    response = client.post("/file", params={"name": "x.po", **languages}, content=catalog)
    assert "{name}" in response.text.rpartition("msgstr")[2]
    for name, content, reason in (
        ("x.exe", b"", "does not end in .txt"),
        ("../../etc/passwd", b"", "does not end in"),
        ("x.txt", b"\xff", "not UTF-8"),
    ):
        response = client.post("/file", params={"name": name, **languages}, content=content)
        assert response.status_code == 400
        assert reason in response.json()["error"]


def test_two_models_for_one_language_pair_have_different_names(exports: list[Path]) -> None:
    app = make_app(make_service([exports[0], exports[0]]), Limits(), None, Metrics())
    with TestClient(app, base_url=URL) as client:
        assert [model["name"] for model in client.get("/models").json()] == ["en-de", "en-de-2"]
        assert translate(client, LINES[0], model="en-de-2")
        response = client.post("/translate", json={"q": "x", "source": "en", "target": "de", "model": "other"})
        assert response.status_code == 400
        assert "en-de-2" in response.json()["error"]


def test_a_model_is_found_whatever_the_region_and_case_of_the_language_code(client: TestClient) -> None:
    plain = translate(client, LINES[0])
    assert translate(client, LINES[0], source="EN", target="de-AT") == plain
    assert translate(client, LINES[0], source="en", target="en-GB") == {"translatedText": LINES[0]}


VALID = {"q": "x", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not valid JSON"),
        (b"\xff", 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        (b'{"q": "\\ud800", "source": "en", "target": "de"}', 400, "not valid JSON in UTF-8"),
        (b"[]", 400, "body"),
        (b"{}", 400, "missing q parameter; missing source parameter; missing target parameter."),
        (json.dumps({**VALID, "q": 7}).encode(), 400, "q: "),
        (json.dumps({**VALID, "q": [[]]}).encode(), 400, "q: "),
        (json.dumps({**VALID, "q": ["x"] * 65}).encode(), 400, "q: "),
        (json.dumps({**VALID, "target": "../.."}).encode(), 400, "target: "),
        (json.dumps({**VALID, "target": "fr"}).encode(), 400, "choose one of en to de"),
        (json.dumps({**VALID, "alternatives": "many"}).encode(), 400, "alternatives: is not a number"),
        (json.dumps({**VALID, "alternatives": [1]}).encode(), 400, "alternatives: is not a number"),
        (b'{"q": "x", "source": "en", "target": "de", "alternatives": 1e999}', 400, "alternatives: is not a number"),
        (json.dumps({**VALID, "format": "xml"}).encode(), 400, "format: "),
        (json.dumps({**VALID, "q": "x" * 20_001}).encode(), 400, "(20,001) exceeds text limit (20,000)"),
        (b" " * 300_000, 413, "send it in parts"),
    ],
)
def test_bad_requests_are_rejected_with_one_sentence(client: TestClient, body: bytes, status: int, reason: str) -> None:
    response = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert reason in response.json()["error"]
    assert "\n" not in response.json()["error"]


def test_other_content_types_methods_and_paths_are_rejected(client: TestClient) -> None:
    assert client.post("/translate", content=b"x", headers={"content-type": "text/plain"}).status_code == 400
    assert client.get("/translate").status_code == 405
    assert client.get("/translate").headers["allow"] == "POST"
    for path in ("/page/../app.py", "/..%2f..%2fetc/passwd", "/page.css/x", "/nothing"):
        response = client.get(path)
        assert response.status_code == 404
        assert "see /docs for the API" in response.json()["error"]


def test_every_response_has_security_headers(client: TestClient) -> None:
    for path in ("/", "/docs", "/page.js", "/nothing", "/languages"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_requests_under_a_foreign_host_name_are_refused(exports: list[Path]) -> None:
    """Against DNS rebinding: a foreign page must not reach a local server under its own name."""
    app = make_app(make_service(exports), Limits(), None, Metrics(), ["translate.example.org"])
    with TestClient(app, base_url="http://evil.example:8765") as client:
        for response in (client.post("/translate", json=VALID), client.get("/"), client.get("/models")):
            assert response.status_code == 403
            assert "--allow-host evil.example" in response.json()["error"]
        for host in ("translate.example.org", "LOCALHOST:8765", "192.168.0.7:8765", "[::1]:8765"):
            assert client.get("/health", headers={"host": host}).status_code == 200


def test_a_server_with_keys_accepts_only_requests_with_a_known_key(exports: list[Path], tmp_path: Path) -> None:
    key = create_api_key(tmp_path / "keys", "alice")
    app = make_app(make_service(exports), Limits(), ApiKeys.read(tmp_path / "keys"), Metrics())
    with TestClient(app, base_url=URL) as client:
        assert client.post("/translate", json=VALID).status_code == 401
        assert client.post("/stream", json=VALID).status_code == 401
        assert client.post("/detect", json={"q": "x"}).status_code == 401
        assert client.post("/file?name=a.txt&source=en&target=de", content=b"x").status_code == 401
        assert client.post("/translate", json={**VALID, "api_key": "wrong"}).status_code == 403
        assert client.post("/translate", json={**VALID, "api_key": key}).status_code == 200
        parts = {name: (None, value) for name, value in {**VALID, "api_key": key}.items()}
        for arguments in ({"data": {**VALID, "api_key": key}}, {"params": {**VALID, "api_key": key}}, {"files": parts}):
            assert client.post("/translate", **arguments).status_code == 200
        assert client.post("/translate", data=VALID, params={"api_key": key}).status_code == 200
        assert client.post("/translate", json={**VALID, "api_key": 7}).status_code == 403
        assert client.post("/translate", json={**VALID, "api_key": ""}).status_code == 401
        assert client.post("/detect", data={"q": "x", "api_key": key}).status_code == 200
        bearer = {"authorization": f"Bearer {key}"}
        assert client.post("/translate", json=VALID, headers=bearer).status_code == 200
        assert client.post("/file?name=a.txt&source=en&target=de", content=b"x", headers=bearer).status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_a_client_over_its_rate_limit_gets_429_with_retry_after(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(requests_per_minute=2), None, Metrics())
    with TestClient(app, base_url=URL) as client:
        responses = [client.post("/translate", json=VALID) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert int(responses[2].headers["retry-after"]) > 0


def test_an_overloaded_server_rejects_requests_but_answers_health_checks(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(max_requests=0), None, Metrics())
    with TestClient(app, base_url=URL) as client:
        response = client.post("/translate", json=VALID)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        assert client.get("/health").json() == {"status": "ok"}
    full_queue = make_app(make_service(exports), Limits(max_waiting=0), None, Metrics())
    with TestClient(full_queue, base_url=URL) as client:
        assert client.post("/translate", json=VALID).status_code == 503


def test_a_request_that_takes_too_long_is_cancelled(exports: list[Path]) -> None:
    app = make_app(make_service(exports), Limits(timeout_s=0.001), None, Metrics())
    with TestClient(app, base_url=URL) as client:
        response = client.post("/translate", json={**VALID, "q": " ".join(LINES)})
        assert response.status_code == 503
        assert "longer than 0.001 s" in response.json()["error"]


def test_metrics_count_requests_characters_and_batches(client: TestClient) -> None:
    translate(client, " ".join(LINES[:7]))
    client.get("/nothing")
    metrics = client.get("/metrics").text
    assert 'dragoman_requests_total{path="/translate",status="200"} 1.0' in metrics
    assert 'dragoman_requests_total{path="other",status="404"} 1.0' in metrics
    assert 'dragoman_batch_sentences_sum{model="en-de"} 7.0' in metrics
    assert f'dragoman_characters_total{{model="en-de"}} {len(" ".join(LINES[:7]))}.0' in metrics


def test_the_openapi_document_and_page_list_every_endpoint(client: TestClient) -> None:
    openapi = client.get("/openapi.json").json()
    assert set(openapi["paths"]) == {
        "/translate", "/stream", "/detect", "/suggest", "/file", "/translate_file", "/download_file/{name}",
        "/languages", "/models", "/frontend/settings", "/health", "/metrics",
    }  # fmt: skip
    page = client.get("/docs").text
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(openapi)))
    assert references <= set(openapi["components"]["schemas"])
    for path, operations in openapi["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in page


def test_html_is_translated_between_its_tags(client: TestClient) -> None:
    first, second = LINES[:2]
    page = f'<p class="x">{first}</p><!-- a --><ul><li><a href="?a=1&amp;b=2">{second}</a></ul><code>{first}</code>'
    expected = page.replace(f">{first}</p>", f">{translate(client, first)['translatedText']}</p>")
    expected = expected.replace(second, translate(client, second)["translatedText"])
    assert translate(client, page, format="html")["translatedText"] == expected


def test_tags_in_html_do_not_change_its_translation(client: TestClient) -> None:
    marked = [line.replace(" ", " <b>", 1).replace(" ", "</b> ", 2).replace("</b> <b>", " <b>", 1) for line in LINES]
    answers = translate(client, marked, format="html")["translatedText"]
    for line, answer in zip(LINES, answers, strict=True):
        assert re.sub("</?b>", "", answer) == translate(client, line)["translatedText"]
        assert answer.count("<b>") == answer.count("</b>") == 1


def test_tags_in_plain_text_stay_around_words_of_the_whole_sentence(client: TestClient) -> None:
    marked = f"<b>{LINES[0].replace(' ', ' <i>', 1)}</i></b>"
    answer = translate(client, marked)["translatedText"]
    assert answer == translate(client, marked, format="html")["translatedText"]
    assert re.sub("<[^>]*>", "", answer) == translate(client, LINES[0])["translatedText"]


def test_alternatives_of_html_have_all_tags(client: TestClient) -> None:
    answer = translate(client, f"<p>{LINES[0].replace(' ', ' <br> ', 1)}</p>", format="html", alternatives=2)
    assert answer["alternatives"]
    for page in (answer["translatedText"], *answer["alternatives"]):
        assert sorted(re.findall("<.*?>", page)) == ["</p>", "<br>", "<p>"]


def test_protected_spans_in_html_are_kept(client: TestClient) -> None:
    answer = translate(client, f"<p>{PROTECTED.replace('and', '<b>and</b>')}</p>", format="html")
    for span in ("https://example.org/a?b=1", "{name}", "1,250.75", "10:30"):
        assert span in answer["translatedText"], answer


def test_the_language_of_html_is_detected_from_its_text(client: TestClient) -> None:
    page = '<p class="der die das und nicht"><!-- Das ist ein deutscher Satz. -->The teacher reads the book.</p>'
    response = client.post("/translate", json={"q": page, "source": "auto", "target": "de", "format": "html"})
    assert response.json()["detectedLanguage"]["language"] == "en"


@given(st.text("<>/!-=\"' abp&;\n", min_size=1, max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_html_is_answered(client: TestClient, page: str) -> None:
    translate(client, page, format="html")

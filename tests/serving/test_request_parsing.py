"""Bodies of requests: JSON, forms, multipart forms and the query."""

import pytest
from starlette.testclient import TestClient

from dragoman.serving import request_parsing
from dragoman.serving.limits import Limits
from dragoman.serving.request_parsing import MAX_FIELDS

from ..models import LINES
from .test_api import translate

LANGUAGES = {"source": "en", "target": "de"}
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}


def part(name: str, value: str = "x", extra: str = "") -> str:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n{value}\r\n'


LANGUAGE_PARTS = part("source", "en") + part("target", "de")


def post_parts(client: TestClient, body: str, path: str = "/translate") -> tuple[int, str]:
    response = client.post(path, content=(body + "--b--\r\n").encode(), headers=MULTIPART)
    return response.status_code, response.text


def test_repeated_fields_of_a_form_are_a_list(client: TestClient) -> None:
    expected = translate(client, LINES[:3])
    assert client.post("/translate", data={"q": LINES[:3], **LANGUAGES}).json() == expected
    parts = "".join(part("q", line) for line in LINES[:3]) + LANGUAGE_PARTS
    assert post_parts(client, parts) == (200, client.post("/translate", json={"q": LINES[:3], **LANGUAGES}).text)
    assert client.post("/translate", params={"q": LINES[:3], **LANGUAGES}).json() == expected


def test_json_types_with_a_suffix_and_a_charset_are_json(client: TestClient) -> None:
    for content_type in ("application/json; charset=utf-8", "application/vnd.api+json", "APPLICATION/JSON"):
        body = b'{"q": "The dog.", "source": "en", "target": "de"}'
        response = client.post("/translate", content=body, headers={"content-type": content_type})
        assert response.json() == translate(client, "The dog.")


def test_line_breaks_of_a_form_are_those_that_the_user_typed(client: TestClient) -> None:
    text = f"{LINES[0]}\n\n{LINES[1]}"
    sent = {"q": text.replace("\n", "\r\n"), **LANGUAGES}
    assert client.post("/translate", data=sent).json() == translate(client, text)


def test_characters_of_all_scripts_arrive_in_every_kind_of_form(client: TestClient) -> None:
    text = "日本 🐪 é"
    same = {"q": text, "source": "en", "target": "en"}
    for arguments in ({"data": same}, {"files": {name: (None, value) for name, value in same.items()}}):
        assert client.post("/translate", **arguments).json() == {"translatedText": text}


def test_a_form_is_the_same_wherever_its_blocks_end(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = part("q", "\r\n--\r\n--a--b") + part("q", "é日") + part("source", "en") + part("target", "en")
    for block_bytes in (1, 2, 3, 7, 100):
        monkeypatch.setattr(request_parsing, "BLOCK_BYTES", block_bytes)
        assert post_parts(client, parts) == (200, '{"translatedText":["\\n--\\n--a--b","é日"]}')


@pytest.mark.parametrize(
    "body",
    [
        "x" * 1000,
        "--b\r\n",
        part("q") * (MAX_FIELDS + 1) + LANGUAGE_PARTS,
        part("q", extra='; filename="a"') * 2 + LANGUAGE_PARTS,
        "--b\r\n" + "X: y\r\n" * 1000 + "\r\nx\r\n",
        "--b\r\nX: " + "y" * 100_000 + "\r\n\r\nx\r\n",
        "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n",
        part("q" * 60_000),
        part("q", "x" * 100_000) + LANGUAGE_PARTS,
    ],
    ids=["garbage", "torn", "many fields", "many files", "many headers", "long header", "no name", "long name", "long"],
)
def test_bad_multipart_forms_are_refused_with_one_sentence(client: TestClient, body: str) -> None:
    status, text = post_parts(client, body)
    assert status == 400
    assert text.startswith('{"error":')


@pytest.mark.parametrize("charset", ["punycode", "idna", "undefined", "utf-16", "zlib", "utf-7", "x" * 1000])
def test_the_charset_of_a_multipart_form_is_always_utf_8(client: TestClient, charset: str) -> None:
    body = part("q", "é") + part("source", "en") + part("target", "en") + "--b--"
    headers = {"content-type": f"multipart/form-data; charset={charset}; boundary=b"}
    assert client.post("/translate", content=body.encode(), headers=headers).json() == {"translatedText": "é"}


def test_a_body_over_the_limit_is_refused_whatever_its_kind(client: TestClient) -> None:
    too_long = "x" * (Limits().max_body_bytes + 1)
    for arguments in ({"data": {"q": too_long}}, {"files": {"q": (None, too_long)}}, {"json": {"q": too_long}}):
        assert client.post("/translate", **arguments).status_code == 413
    upload = {"file": ("a.txt", b"x" * (Limits().max_file_bytes + 1))}
    assert client.post("/translate_file", files=upload, data=LANGUAGES).status_code == 413
    upload = {"file": ("a.txt", b"x" * (2 * Limits().max_file_bytes))}
    assert client.post("/translate_file", files=upload, data=LANGUAGES).status_code == 413

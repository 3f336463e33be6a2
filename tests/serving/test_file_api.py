"""Files translated through LibreTranslate's endpoints."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dragoman.decoding.glossary import GlossaryFile
from dragoman.serving.api_keys import ApiKeys, create_api_key
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.translated_files import TranslatedFiles, translated_name, write_unnamed

from ..models import LINES
from .conftest import make_service
from .test_api import GERMAN, URL, translate

TEXT = f"{LINES[0]}\n\n{LINES[1]}\n"


def upload(client: TestClient, name: str = "letter.txt", content: str = TEXT, **fields: str) -> str:
    """Path of the translated file."""
    data = {"source": "en", "target": "de", **fields}
    response = client.post("/translate_file", files={"file": (name, content.encode())}, data=data)
    assert response.status_code == 200, response.text
    address = response.json()["translatedFileUrl"]
    assert address.startswith(f"{URL}/download_file/")
    return urlsplit(address).path


def test_a_file_is_translated_and_downloaded(client: TestClient) -> None:
    path = upload(client)
    assert path.endswith(".letter_de.txt")
    for _ in range(2):  # Until it expires, as often as the client likes.
        response = client.get(path)
        assert response.text == translate(client, TEXT)["translatedText"]
        assert response.headers["content-disposition"] == 'attachment; filename="letter_de.txt"'
        assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_terms_of_a_request_come_out_in_its_file_and_are_reported(client: TestClient) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    page = f"<p title='zebra'>{LINES[0]}</p><p>{LINES[0]}</p>"
    data = {"source": "en", "target": "de", "glossary": json.dumps({word: "Xylophon", "zebra": "Zebra"})}
    response = client.post("/translate_file", files={"file": ("a.html", page.encode())}, data=data).json()
    assert response["glossary"] == {"applied": [{"source": word, "target": "Xylophon"}], "missing": []}
    assert client.get(urlsplit(response["translatedFileUrl"]).path).text.count("Xylophon") == 2


@pytest.mark.parametrize("glossary", ["{", "[1]", '{"dog": ""}', '{"dog": 3}'])
def test_an_invalid_glossary_for_a_file_is_refused(client: TestClient, glossary: str) -> None:
    data = {"source": "en", "target": "de", "glossary": glossary}
    response = client.post("/translate_file", files={"file": ("a.txt", b"A dog.")}, data=data)
    assert response.status_code == 400
    assert "glossary" in response.json()["error"]


def test_a_glossary_in_the_query_of_file_is_refused(client: TestClient) -> None:
    response = client.post("/file?name=a.txt&source=en&target=de&glossary={}", content=b"A dog.")
    assert response.status_code == 400
    assert "/file takes no glossary" in response.json()["error"]


def test_the_progress_of_a_file_ends_with_the_terms_of_the_glossary(exports: list[Path], tmp_path: Path) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    (tmp_path / "terms.tsv").write_text(f"{word}\tXylophon\n")
    service = make_service(exports[:1], glossaries=[GlossaryFile(tmp_path / "terms.tsv")])
    with TestClient(make_app(service, Limits(), None, Metrics()), base_url=URL) as client:
        headers = {"accept": "application/x-ndjson"}
        response = client.post("/file?name=a.txt&source=en&target=de", content=LINES[0].encode(), headers=headers)
    last = json.loads(response.text.splitlines()[-1])
    assert last["glossary"] == {"applied": [{"source": word, "target": "Xylophon"}], "missing": []}


def test_the_language_of_a_file_is_detected(client: TestClient) -> None:
    assert client.get(upload(client, source="auto")).text == translate(client, TEXT)["translatedText"]
    assert client.get(upload(client, content=GERMAN, source="auto")).text == GERMAN
    unit = f'<tu><tuv xml:lang="en"><seg>{LINES[0]}</seg></tuv></tu>'
    tmx = client.get(upload(client, "a.tmx", f"<tmx><body>{unit}</body></tmx>", source="auto")).text
    assert translate(client, LINES[0])["translatedText"] in tmx


def test_a_damaged_file_is_refused(client: TestClient) -> None:
    languages = {"source": "en", "target": "de"}
    for name, content, reason in (
        ("a.tmx", b"<tmx", "not well-formed"),
        ("a.txt", b"\xff", "not UTF-8"),
        ("passwd", b"", "file format not supported"),
    ):
        for data in (languages, {**languages, "source": "auto"}):
            response = client.post("/translate_file", files={"file": (name, content)}, data=data)
            assert response.status_code == 400
            assert reason in response.json()["error"]


def test_files_need_a_key_but_their_download_does_not(exports: list[Path], tmp_path: Path) -> None:
    key = create_api_key(tmp_path / "keys", "alice")
    app = make_app(make_service(exports), Limits(), ApiKeys.read(tmp_path / "keys"), Metrics())
    with TestClient(app, base_url=URL) as client:
        languages = {"source": "en", "target": "de"}
        files = {"file": ("a.txt", b"x")}
        assert client.post("/translate_file", files=files, data=languages).status_code == 401
        assert client.post("/translate_file?api_key=wrong", files=files, data=languages).status_code == 403
        assert client.get(upload(client, api_key=key)).status_code == 200
        assert client.post(f"/translate_file?api_key={key}", files=files, data=languages).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["..%2f..%2fetc%2fpasswd", "%2e%2e", "a.txt", "", "%00", "letter_de.txt", "x" * 3000, "%0d%0aX:%20y"],
)
def test_no_other_file_can_be_downloaded(client: TestClient, name: str) -> None:
    upload(client)
    assert client.get(f"/download_file/{name}").status_code == 404


@given(st.text(max_size=120), st.text(st.characters(codec="ascii"), max_size=20))
def test_names_of_translated_files_are_safe_in_headers_urls_and_folders(name: str, target: str) -> None:
    safe = translated_name(name, target)
    assert set(safe) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
    assert not safe.startswith(".")
    assert ".." not in safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.TXT", "report_de.txt"),
        ("../../etc/cron.d/x.txt", "x_de.txt"),
        ("C:\\temp\\x.txt", "x_de.txt"),
        ('a"\r\nSet-Cookie: b.txt', "a_Set-Cookie_b_de.txt"),
        ("日本.txt", "file_de.txt"),
        ("a.b.txt", "a_b_de.txt"),
    ],
)
def test_the_name_of_a_translated_file_resembles_the_original(name: str, safe: str) -> None:
    assert translated_name(name, "de") == safe


def test_files_expire_and_the_oldest_give_way() -> None:
    async def check() -> None:
        files = TranslatedFiles(max_files=2)
        keys = [files.add(write_unnamed(b"%d" % number), "a.txt", "text/plain") for number in range(3)]
        assert [files.find(key) is not None for key in keys] == [False, True, True]
        assert files.find(keys[2]).read() == b"2"
        files.close()
        assert files.find(keys[2]) is None
        brief = TranslatedFiles(lifetime_s=0.0)
        key = brief.add(write_unnamed(b"x"), "a.txt", "text/plain")
        content = brief.find(key).content
        while brief.find(key):
            await asyncio.sleep(0)
        assert content.closed

    asyncio.run(check())

"""Documents translated by the server, with progress."""

import base64
import io
import json

import docx
import pytest
from benchmarks.document_structure import describe
from benchmarks.sample_documents import make_documents, make_docx
from starlette.testclient import TestClient

from dragoman.documents.formats import FORMATS

from ..models import LINES
from .test_api import translate

SAMPLES = make_documents()
PROGRESS = {"accept": "application/x-ndjson"}


def post_file(client: TestClient, name: str, content: bytes, source: str = "en", **headers: str):
    return client.post(f"/file?name={name}&source={source}&target=de", content=content, headers=headers)


@pytest.mark.parametrize("name", SAMPLES)
def test_documents_of_all_formats_are_translated(client: TestClient, name: str) -> None:
    extension, content = SAMPLES[name]
    response = post_file(client, f"a.{extension}", content)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].partition(";")[0] == FORMATS[extension].media_type.partition(";")[0]
    assert response.content != content
    describe(name, response.content)  # The format's own library reads it.


def test_progress_is_reported_before_the_document(client: TestClient) -> None:
    text = "\n".join(f"{number} {line}" for number in range(20) for line in LINES)
    response = post_file(client, "a.txt", text.encode(), **PROGRESS)
    *progress, last = map(json.loads, response.text.splitlines())
    assert progress
    assert all(0 <= line["done"] <= line["total"] for line in progress)
    assert [line["done"] for line in progress] == sorted(line["done"] for line in progress)
    assert progress[-1]["total"] == 20 * len(LINES)
    assert base64.b64decode(last["file"]) == post_file(client, "a.txt", text.encode()).content


def test_a_damaged_document_ends_the_progress_with_one_sentence(client: TestClient) -> None:
    response = post_file(client, "a.docx", b"PK", **PROGRESS)
    assert [json.loads(line) for line in response.text.splitlines()] == [
        {"error": "The file is damaged, or not in the format of its extension: save it again."}
    ]
    assert post_file(client, "a.docx", b"PK").status_code == 400


def test_words_in_another_format_keep_it(client: TestClient) -> None:
    document = docx.Document()
    document.add_paragraph().add_run(LINES[0]).bold = True
    content = io.BytesIO()
    document.save(content)
    [paragraph] = docx.Document(io.BytesIO(post_file(client, "a.docx", content.getvalue()).content)).paragraphs
    assert [(run.text, run.bold) for run in paragraph.runs] == [(translate(client, LINES[0])["translatedText"], True)]


def test_archives_may_be_larger_than_text(client: TestClient) -> None:
    limits = client.get("/frontend/settings").json()["maxFileBytes"]
    assert limits["docx"] > limits["txt"]
    response = post_file(client, "a.txt", b"a" * (limits["txt"] + 1))
    assert response.status_code == 413
    files = {"file": ("a.txt", b"a" * (limits["txt"] + 1))}
    assert client.post("/translate_file", files=files, data={"source": "en", "target": "de"}).status_code == 413
    big = make_docx() + bytes(limits["txt"])  # Zip files may have other data behind them.
    assert post_file(client, "a.docx", big).status_code in (200, 400)


def test_the_language_of_a_document_is_detected(client: TestClient) -> None:
    text = "The teacher reads a long book in the garden every evening.\n"
    assert (
        post_file(client, "a.txt", text.encode(), source="auto").content
        == post_file(client, "a.txt", text.encode()).content
    )

"""Translation through a third language where no model translates directly, and glossaries of the server."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dragoman.corpus.sources import Languages
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.glossary import GlossaryFile
from dragoman.errors import DragomanError
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.translation_service import TranslationService, UnknownDirectionError

from ..models import LINES
from .conftest import copy_with_direction, make_service

PROTECTED = "Visit https://example.org/a?b=1, {name}, and pay 1,250.75 by 10:30."


@pytest.fixture(scope="module")
def models(exports: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Toy models by their directions, whatever they write."""
    folder = tmp_path_factory.mktemp("directions")
    directions = ("en-de", "de-fr", "fr-en", "fr-es", "de-en")
    return {direction: copy_with_direction(exports[0], folder, direction) for direction in directions}


def make_client(service: TranslationService) -> TestClient:
    return TestClient(make_app(service, Limits(), None, Metrics()), base_url="http://127.0.0.1")


@pytest.fixture
def client(models: dict[str, Path]) -> Iterator[TestClient]:
    with make_client(make_service([models["en-de"], models["de-fr"]])) as client:
        yield client


def translate(client: TestClient, q: str | list[str], target: str = "fr", **fields: Any) -> Any:
    response = client.post("/translate", json={"q": q, "source": "en", "target": target, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_two_models_in_a_row_give_the_translation_of_the_translation(
    client: TestClient, models: dict[str, Path]
) -> None:
    first, second = (CTranslate2Translator.load(models[name], "cpu") for name in ("en-de", "de-fr"))
    for line in LINES[:4]:
        expected = second.translate(first.translate([line]))[0]
        assert translate(client, line) == {"translatedText": expected, "via": "de"}
    assert "via" not in translate(client, LINES[0], "de")
    assert translate(client, LINES[:2])["via"] == ["de", "de"]


def test_the_server_lists_what_it_can_reach(client: TestClient) -> None:
    targets = {language["code"]: language["targets"] for language in client.get("/languages").json()}
    assert targets["en"] == ["de", "en", "fr"]
    assert targets["de"] == ["de", "fr"]
    models = {model["name"]: (model["source"], model["target"], model["via"]) for model in client.get("/models").json()}
    assert models == {
        "en-de": ("en", "de", None),
        "de-fr": ("de", "fr", None),
        "en-de+de-fr": ("en", "fr", "de"),
    }


def test_a_stream_says_which_language_it_goes_through(client: TestClient) -> None:
    fields = {"q": LINES[0], "source": "en", "target": "fr", "confidence": True}
    header, sentence, end = map(json.loads, client.post("/stream", json=fields).text.splitlines())
    assert (header["model"], header["via"]) == ("en-de+de-fr", "de")
    assert " ".join(word["text"] for word in sentence["words"]) == sentence["text"]
    assert end["done"]


def test_protected_spans_of_the_original_text_survive_both_models(client: TestClient) -> None:
    translated = translate(client, PROTECTED)["translatedText"]
    for span in ("https://example.org/a?b=1", "{name}", "1,250.75", "10:30"):
        assert span in translated


def test_tags_survive_both_models(client: TestClient) -> None:
    marked = " ".join(f"<b>{word}</b>" if index == 1 else word for index, word in enumerate(LINES[0].split()))
    answer = translate(client, f"<p>{marked}</p>", format="html")
    assert answer["via"] == "de"
    plain = translate(client, LINES[0])["translatedText"]
    assert re.sub("<[^>]*>", "", html.unescape(answer["translatedText"])) == plain
    assert answer["translatedText"].count("<b>") == answer["translatedText"].count("</b>") == 1


def test_the_shortest_way_is_taken_and_english_is_preferred(models: dict[str, Path]) -> None:
    service = make_service([models[name] for name in ("en-de", "de-fr", "fr-en", "fr-es", "de-en")])
    assert service.find_model("en", "de").name == "en-de"
    assert service.find_model("fr", "de").via == "en"
    assert service.find_model("en", "fr").via == "de"
    assert service.find_model("de", "es").via == "fr"
    with pytest.raises(UnknownDirectionError, match="en to es"):
        service.find_model("en", "es")  # three models would be needed
    with pytest.raises(UnknownDirectionError):
        service.find_model("en", "en")
    service.close()


# Glossaries


def test_terms_of_a_request_come_out_and_are_reported(client: TestClient) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    for target, via in (("de", None), ("fr", "de")):
        answer = translate(client, LINES[0], target, glossary={word: "Xylophon", "zebra": "Zebra"})
        assert "Xylophon" in answer["translatedText"]
        assert answer["glossary"] == {"applied": [{"source": word, "target": "Xylophon"}], "missing": []}
        assert answer.get("via") == via
    listed = translate(client, [LINES[0], "Zebra."], "de", glossary={word: "Xylophon"})
    assert [len(check["applied"]) for check in listed["glossary"]] == [1, 0]
    assert "glossary" not in translate(client, LINES[0], "de")


def test_a_stream_reports_terms_at_its_end(client: TestClient) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    fields = {"q": LINES[0], "source": "en", "target": "de", "glossary": {word: "Xylophon"}}
    *_, end = map(json.loads, client.post("/stream", json=fields).text.splitlines())
    assert end["glossary"]["applied"] == [{"source": word, "target": "Xylophon"}]


def test_terms_of_html_are_those_of_its_visible_text(client: TestClient) -> None:
    first, second = LINES[0].split()[-2:]
    term = f"{first} {second.strip('.')}"
    page = f"<p>{LINES[0].replace(first, f'<b>{first}</b>')} <a title='zebra'>The sea.</a> <code>horse</code></p>"
    glossary = {term: "Xylophon", "zebra": "Zebra", "horse": "Pferd", "title": "Titel"}
    answer = translate(client, page, "de", format="html", glossary=glossary)
    assert answer["glossary"] == {"applied": [{"source": term, "target": "Xylophon"}], "missing": []}


def test_a_form_sends_its_glossary_as_json(client: TestClient) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    form = {"q": LINES[0], "source": "en", "target": "de", "glossary": json.dumps({word: "Xylophon"})}
    assert "Xylophon" in client.post("/translate", data=form).json()["translatedText"]


@pytest.mark.parametrize(
    "glossary", [{"": "x"}, {"dog": ""}, {"dog": 3}, ["dog"], "dog", {"a b": "?"}, "[1]", "{", "[" * 10**5]
)
def test_an_invalid_glossary_is_refused_with_a_reason(glossary: Any, client: TestClient) -> None:
    fields = {"q": "A dog.", "source": "en", "target": "de", "glossary": glossary}
    response = client.post("/translate", json=fields)
    assert response.status_code == 400
    assert "glossary" in response.json()["error"]


def test_the_glossary_of_the_server_applies_to_its_direction(models: dict[str, Path], tmp_path: Path) -> None:
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    file = tmp_path / "terms.tsv"
    file.write_text(f"{word}\tXylophon\n", encoding="utf-8")
    folders = [models["en-de"], models["de-fr"]]
    service = make_service(folders, glossaries=[GlossaryFile(file, Languages("en", "de"))])
    with make_client(service) as client:
        assert "Xylophon" in translate(client, LINES[0], "de")["translatedText"]
        assert "glossary" not in translate(client, LINES[0], "fr")
        other = translate(client, LINES[0], "de", glossary={word.upper(): "Zebra"})
        assert "Zebra" in other["translatedText"]
    with pytest.raises(DragomanError, match="for no model here"):
        make_service(folders, glossaries=[GlossaryFile(file, Languages("fr", "de"))])

"""Where LibreTranslate answers, this server answers alike. The expected answers were recorded from LibreTranslate."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.libretranslate_requests import EXCHANGES, NOT_JSON, SETTINGS, RecordedExchange, shape_of
from starlette.testclient import TestClient

from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.suggestions import SuggestionStore

from .conftest import make_service


@pytest.fixture(scope="module")
def server(exports: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    suggestions = SuggestionStore(tmp_path_factory.mktemp("suggestions"))
    app = make_app(make_service(exports), Limits(), None, Metrics(), suggestions=suggestions)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_a_request_is_answered_as_by_libretranslate(server: TestClient, exchange: RecordedExchange) -> None:
    arguments = dict(exchange.request)
    response = server.request(arguments.pop("method"), arguments.pop("path"), **arguments)
    assert response.status_code == (exchange.ours or exchange.status), response.text
    if exchange.ours is None and exchange.shape not in (None, NOT_JSON):
        assert shape_of(response.json()) == exchange.shape
    elif response.status_code >= 400:
        assert list(response.json()) == ["error"]


def test_settings_for_pages_have_libretranslate_s_names(server: TestClient) -> None:
    settings = server.get("/frontend/settings").json()
    assert shape_of({key: settings[key] for key in SETTINGS}) == SETTINGS
    assert set(settings) - set(SETTINGS) == {"maxFileBytes"}


def test_every_difference_has_a_reason() -> None:
    assert all(bool(exchange.reason) == (exchange.ours is not None) for exchange in EXCHANGES)

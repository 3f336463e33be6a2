"""Pages of other origins, which may use the API only if the operator says so."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dragoman.commands.serve import _check_origins
from dragoman.errors import DragomanError
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics

from .conftest import make_service
from .test_api import URL, VALID

FORUM = "https://forum.example.org"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}


def make_client(exports: list[Path], *origins: str, limits: Limits = Limits()) -> TestClient:
    return TestClient(make_app(make_service(exports), limits, None, Metrics(), origins=origins), base_url=URL)


def allowed_origin(client: TestClient, origin: str) -> str | None:
    """The origin that may read an answer, if it may send the request as well."""
    preflight = client.options("/translate", headers={"origin": origin, **PREFLIGHT})
    response = client.post("/translate", json=VALID, headers={"origin": origin})
    allowed = {answer.headers.get("access-control-allow-origin") for answer in (preflight, response)}
    assert len(allowed) == 1
    assert (preflight.status_code == 200) == (allowed != {None})
    return allowed.pop()


def test_pages_of_other_origins_are_kept_out_by_default(client: TestClient) -> None:
    assert allowed_origin(client, FORUM) is None


def test_pages_of_the_given_origins_may_use_the_api(exports: list[Path]) -> None:
    with make_client(exports, FORUM, "https://b.example") as client:
        assert allowed_origin(client, FORUM) == FORUM
        assert allowed_origin(client, "https://evil.example") is None
        assert allowed_origin(client, f"{FORUM}.evil.example") is None
        assert allowed_origin(client, "null") is None


def test_all_pages_may_use_the_api_of_a_public_server(exports: list[Path]) -> None:
    with make_client(exports, "*") as client:
        assert allowed_origin(client, FORUM) == "*"
        assert "access-control-allow-credentials" not in client.get("/languages", headers={"origin": FORUM}).headers


def test_a_page_can_read_why_its_request_was_refused(exports: list[Path]) -> None:
    with make_client(exports, FORUM, limits=Limits(timeout_s=0.0001)) as client:
        response = client.post("/translate", json=VALID, headers={"origin": FORUM})
        assert response.status_code == 503
        assert response.headers["access-control-allow-origin"] == FORUM


def test_something_else_than_an_origin_is_the_user_s_error() -> None:
    assert _check_origins(["*", FORUM, "http://localhost:3000"])
    for text in ("forum.example.org", "https://forum.example.org/", "https://a b", "", "ftp://a"):
        with pytest.raises(DragomanError, match="is not an origin"):
            _check_origins([text])

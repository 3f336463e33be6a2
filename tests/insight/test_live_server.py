import asyncio
import json
import logging
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import StepDone
from dragoman.insight import live_server
from dragoman.insight.live_server import LiveServer, WatchedRuns, make_app, stream_updates
from dragoman.run_folder import RunFolder

from ..http_servers import STATUS_LINE, exchange, mutations, running_server
from .synthetic_runs import synthetic_run, untested, write_run
from .test_page import embedded_data


def test_requests_without_the_token_are_refused(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    with TestClient(make_app(WatchedRuns([run], untested), "secret")) as client:
        assert client.get("/").status_code == 403
        assert client.get("/events?token=wrong").status_code == 403
        page = client.get("/?token=secret")
    assert embedded_data(page.text)["live"] is True


def test_requests_under_a_foreign_host_name_are_refused(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    with TestClient(make_app(WatchedRuns([run], untested), None), base_url="http://evil.example") as client:
        response = client.get("/")
    assert response.status_code == 403
    assert "evil.example" in response.text
    for url in ("http://localhost:8090", "http://[::1]:8090", "http://127.0.0.1", "http://this-machine:8090"):
        with TestClient(make_app(WatchedRuns([run], untested), None, ["This-Machine"]), base_url=url) as client:
            assert client.get("/").status_code == 200


@pytest.mark.parametrize("token", ["%C3%A9", "%FF", "é", "%00", "%ED%A0%80", "", "x" * 10_000])
def test_any_wrong_token_is_refused(tmp_path, token):
    run = write_run(tmp_path / "run", synthetic_run(60))
    with TestClient(make_app(WatchedRuns([run], untested), "secret")) as client:
        assert client.get(f"/?token={token}").status_code == 403
        assert client.get(f"/events?token={token}").status_code == 403


@pytest.fixture(scope="module", params=[None, "secret"])
def port(request, tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("watched") / "run", synthetic_run(60))
    stops_at_once = make_app(WatchedRuns([run], untested), request.param, is_stopping=lambda: True)
    with running_server(stops_at_once, read_timeout_s=0.2) as port:
        yield port


REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([b"/?token=secret", b"/events?token=secret"])
    .flatmap(mutations)
    .map(lambda target: REQUEST % target)
    | mutations(REQUEST % b"/?token=wrong")
)
def test_hostile_bytes_never_cause_a_server_error(port, caplog, request_bytes):
    caplog.clear()
    assert all(int(status) < 500 for status in STATUS_LINE.findall(exchange(port, request_bytes))), request_bytes
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], request_bytes


@pytest.mark.parametrize(("host", "has_token"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_only_addresses_other_than_loopback_have_a_token(tmp_path, host, has_token):
    server = LiveServer([write_run(tmp_path / "run", synthetic_run(60))], host, 0, untested)
    assert ("?token=" in server.address) == has_token
    server._socket.close()


def test_a_run_that_has_not_started_is_an_error_at_once(tmp_path):
    with pytest.raises(DragomanError, match="has not started"):
        WatchedRuns([write_run(tmp_path / "run", [])], untested)


def test_every_browser_gets_new_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(live_server, "POLL_INTERVAL_S", 0.01)
    recorded = synthetic_run(60, total_steps=80, ended=None)
    run = write_run(tmp_path / "run", recorded)
    watched = WatchedRuns([run], untested)
    last = [event for event in recorded if isinstance(event, StepDone)][-1]

    async def receive() -> list[int]:
        first, second = (stream_updates(watched, lambda: False) for _ in range(2))
        messages = [await anext(first), await anext(second)]
        EventLog(RunFolder(run).events_of(0)).record(replace(last, step=61, at_s=last.at_s + 60))
        messages += [await anext(first), await anext(second)]
        return [json.loads(message.removeprefix("data: "))["runs"][0]["step"] for message in messages]

    assert asyncio.run(receive()) == [60, 60, 61, 61]


def test_several_runs_are_compared(tmp_path):
    runs = [write_run(tmp_path / name, synthetic_run(60)) for name in ("base", "other")]
    content = WatchedRuns(runs, untested).content()
    assert content["comparison"]["runs"] == ["base", "other"]
    assert WatchedRuns(runs[:1], untested).content()["comparison"] is None

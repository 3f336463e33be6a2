import asyncio
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from starlette.testclient import TestClient

from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import EvaluationDone, Event, StepDone
from dragoman.insight import live_server
from dragoman.insight.live_server import Watch, make_app
from dragoman.insight.page import render, to_script_json
from dragoman.insight.report_writer import as_markdown, read_digest, report
from dragoman.insight.run_history import tell
from dragoman.insight.run_summary import MOST_POINTS, buckets, digest
from dragoman.run_folder import RunFolder

from .runs import made_run


def recorded(folder: Path, told: list[Event]) -> Path:
    """A run's folder with these events."""
    folder.mkdir()
    RunFolder(folder).config.write_text("{}")
    log = EventLog(RunFolder(folder).events_of(0))
    for event in told:
        log.record(event)
    log.close()
    return folder


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@given(st.lists(st.integers()), st.integers(1, 50))
def test_buckets_hold_everything_once_in_order(items, most):
    groups = buckets(items, most)
    assert [item for group in groups for item in group] == items
    assert len(groups) <= most


def test_numbers_on_the_page_are_those_of_the_events():
    told = made_run(100, evaluate_every=20)
    shown = digest(tell(told), 0)
    steps = [event for event in told if isinstance(event, StepDone)]
    assert shown["curves"]["step"] == [step.step for step in steps]
    assert shown["curves"]["train_loss"] == pytest.approx([step.nll for step in steps], rel=1e-4)
    parts = shown["anatomy"]["parts"]
    sums = [sum(column) for column in zip(*parts.values(), strict=True)]
    assert sums == pytest.approx(shown["anatomy"]["step_s"], rel=1e-3)


def test_each_workers_part_is_shown_as_far_as_it_is_known_here():
    told = made_run(100)
    other = [
        replace(event, worker=1, compute_s=0.5) for event in told if isinstance(event, StepDone) and event.step % 9 == 0
    ]
    first, second = digest(tell([*told, *other]), 0)["workers"]
    assert (first["worker"], first["parts"]["computing"]) == ("worker 0 on a", pytest.approx(0.84))
    assert (second["worker"], second["parts"]["computing"]) == ("worker 1 on b", pytest.approx(0.5))
    assert second["ready_s"] == pytest.approx(0.94, abs=0.01)
    assert digest(tell(told), 0)["workers"][1]["parts"] == {}


def test_a_long_run_stays_small():
    shown = digest(tell(made_run(20_000, evaluate_every=500)), 0)
    assert len(shown["curves"]["step"]) <= MOST_POINTS
    assert shown["curves"]["step"][-1] == 20_000
    assert len(render([shown])) < 300_000


def test_text_of_a_run_cannot_become_markup():
    sample = {"source": "</script><script>alert(1)</script>", "reference": "{{data}}", "translation": ""}
    told = [replace(event, samples=[sample]) if isinstance(event, EvaluationDone) else event for event in made_run(60)]
    page = render([digest(tell(told), 0)])
    assert "<script>alert" not in page
    assert data_of(page)["runs"][0]["samples"][-1]["samples"] == [sample], "it is shown as it is"


def test_the_page_asks_no_one_else_for_anything():
    page = render([digest(tell(made_run(60)), 0)])
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)""", page) == []
    assert re.findall(r"https?://(?!www\.w3\.org)", page) == []


def test_losses_that_are_not_finite_leave_a_page_that_can_be_read():
    told = made_run(60, valid_loss=lambda step: math.nan if step > 30 else 3.0)
    assert json.loads(to_script_json(digest(tell(told), 0)))["evaluations"][-1]["loss"] is None


def test_a_report_is_one_file_beside_the_run(tmp_path):
    run = recorded(tmp_path / "run", made_run(60))
    console = Console(file=io.StringIO(), width=200)
    report([run], None, console)
    assert f"The whole report: {run / 'report.html'}" in console.file.getvalue()
    assert data_of((run / "report.html").read_text())["runs"][0]["step"] == 60


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    run = recorded(tmp_path / "run", made_run(60))
    with pytest.raises(DragomanError, match="choose another --out"):
        report([run], tmp_path / "missing" / "report.html", Console(file=io.StringIO()))


def test_the_answers_can_be_had_as_markdown(tmp_path):
    content = read_digest(recorded(tmp_path / "run", made_run(300)))
    text = as_markdown(content)
    assert text.startswith("# made\n")
    assert all(f"### {answer['question']}" in text for answer in content["answers"])
    assert "| 300 |" in text


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(DragomanError, match="is no run"):
        read_digest(tmp_path)
    with pytest.raises(DragomanError, match="has not begun"):
        read_digest(recorded(tmp_path / "run", []))


def test_nobody_reads_without_the_token(tmp_path):
    run = recorded(tmp_path / "run", made_run(60))
    with TestClient(make_app(Watch([run]), "secret")) as client:
        assert client.get("/").status_code == 403
        assert client.get("/events?token=wrong").status_code == 403
        page = client.get("/?token=secret")
    assert data_of(page.text)["live"] is True


def test_a_name_that_leads_here_from_elsewhere_is_refused(tmp_path):
    run = recorded(tmp_path / "run", made_run(60))
    with TestClient(make_app(Watch([run]), None), base_url="http://evil.example") as client:
        assert client.get("/").status_code == 400
    with TestClient(make_app(Watch([run]), None), base_url="http://localhost:8090") as client:
        assert client.get("/").status_code == 200


def test_every_browser_hears_of_new_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(live_server, "LOOK_S", 0.01)
    told = made_run(60, total_steps=80, ended=None)
    run = recorded(tmp_path / "run", told)
    watched = Watch([run])
    last = [event for event in told if isinstance(event, StepDone)][-1]

    async def listen() -> list[int]:
        first, second = (live_server._news(watched, lambda: False) for _ in range(2))
        heard = [await anext(first), await anext(second)]
        EventLog(RunFolder(run).events_of(0)).record(replace(last, step=61, at_s=last.at_s + 60))
        heard += [await anext(first), await anext(second)]
        return [json.loads(each.removeprefix("data: "))["runs"][0]["step"] for each in heard]

    assert asyncio.run(listen()) == [60, 60, 61, 61]

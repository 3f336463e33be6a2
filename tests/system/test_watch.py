"""The live page and the report in a real browser."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dragoman.events import EvaluationDone, StepDone
from dragoman.insight.page import render
from dragoman.insight.run_history import build_history
from dragoman.insight.run_summary import summarize
from dragoman.run_folder import RunFolder

from ..insight.synthetic_runs import host_sample, synthetic_run
from ..processes import start, wait_for_steps
from .browser import NARROW, needs_chromium, opened_page

pytestmark = [pytest.mark.system, needs_chromium]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened_page(browser) as opened:
        yield opened


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a report of two synthetic runs."""
    long_word = {"source": "word " * 50, "reference": "r", "translation": "a" * 500}
    running = synthetic_run(3000, total_steps=5000, evaluate_every=250, ended=None)
    running = [replace(event, samples=[long_word]) if isinstance(event, EvaluationDone) else event for event in running]
    host_samples = [host_sample("b", n) for n in range(9)]
    runs = [build_history([*running, *host_samples]), build_history(synthetic_run(2000, evaluate_every=250))]
    path = tmp_path / "report.html"
    path.write_text(render([summarize(history, history.session_spans_s[-1][1]) for history in runs]))
    return path.as_uri()


def test_the_live_page_follows_a_run_to_its_end(data, tmp_path, page):
    run = tmp_path / "run"
    training = start(data.path, run, "training.steps=60", "evaluation.every=20", workers=1)
    wait_for_steps(run, 5, training)
    watching = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "watch", str(run), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://\S+", watching.stdout.readline())[0]
        page.goto(address)
        expect(page.locator("#state")).to_have_text("finished")
        expect(page.locator("#numbers")).to_contain_text("60 of 60")
        curves, numbers = page.evaluate("runs[0].curves"), page.locator("#numbers").inner_text()
        page.goto("about:blank")  # Without a connection to the server, which ends now, the page has no error.
    finally:
        watching.terminate()
        watching.communicate()
        training.communicate()
    assert watching.returncode in (0, -signal.SIGTERM)
    recorded = RunFolder(run).events()
    last = [event for event in recorded if isinstance(event, EvaluationDone)][-1]
    assert f"{last.nll:.3f}" in numbers
    steps = [event for event in recorded if isinstance(event, StepDone)]
    assert curves["step"] == [step.step for step in steps]
    assert curves["train_loss"] == pytest.approx([step.nll for step in steps], rel=1e-4)


def test_the_keyboard_shows_values_and_zooms(page, report):
    page.goto(report)
    chart = page.locator("#curves .chart").first
    chart.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    expect(chart.locator("output")).to_contain_text("training")
    page.keyboard.press("+")
    expect(page.locator("#reset-zoom")).to_be_visible()
    page.keyboard.press("0")
    expect(page.locator("#reset-zoom")).to_be_hidden()


def test_dragging_zooms_a_chart(page, report):
    page.goto(report)
    chart = page.locator("#curves .chart svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.up()
    expect(page.locator("#reset-zoom")).to_be_visible()


def test_buttons_select_a_run_and_answers_open(page, report):
    page.goto(report)
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#hosts")).to_contain_text("eth0")
    page.locator("#runs button").nth(1).click()
    expect(page.locator("#state")).to_have_text("finished")
    expect(page.locator("#hosts")).to_be_hidden()
    expect(page.locator("#answers details")).to_have_count(11)
    page.locator("#answers summary").nth(6).click()
    expect(page.locator("#answers details").nth(6)).to_contain_text("before cleaning 2,000,000 pairs")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_do_not_scroll_sideways_in_either_colour_scheme(browser, report, scheme):
    context = browser.new_context(viewport=NARROW, color_scheme=scheme)
    page = context.new_page()
    page.goto(report)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()


def test_every_chart_has_a_text_description(page, report):
    page.goto(report)
    labels = page.locator(".chart svg").evaluate_all("charts => charts.map((each) => each.getAttribute('aria-label'))")
    assert len(labels) == 6
    assert all(" from " in label for label in labels)

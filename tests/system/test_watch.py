"""The live page and the report in a real browser."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dragoman.decoding import comparison_page
from dragoman.decoding.scoring import compare
from dragoman.events import EvaluationDone, StepDone
from dragoman.insight import distillation_report
from dragoman.insight.page import render
from dragoman.insight.report_content import summarize_runs
from dragoman.insight.run_history import build_history
from dragoman.run_folder import RunFolder
from dragoman.synthesis_events import SynthesisEnded

from ..insight.synthetic_runs import fine_tuned_run, host_sample, synthetic_run, untested, write_run
from ..insight.test_distillation_report import CONTENT as DISTILLATION
from ..insight.test_synthesis_summary import session
from ..insight.test_synthesis_summary import write as write_synthesis
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
    host_samples += [host_sample("a", n) for n in range(9)]
    recorded = {"running": [*running, *host_samples], "finished": synthetic_run(2000, evaluate_every=250)}
    path = tmp_path / "report.html"
    runs = [write_run(tmp_path / name, events) for name, events in recorded.items()]
    histories = [build_history(events) for events in recorded.values()]
    path.write_text(render(**summarize_runs(runs, histories, running[-1].at_s, untested)))
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
        expect(page.locator("#overview p").first).to_contain_text("Finished at step 60 of 60")
        expect(page.locator(".time-legend")).to_contain_text("compute")
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


def test_the_live_page_follows_a_synthesis(tmp_path, page):
    events = session(start_s=time.time() - 100, price_per_hour=[36.0])
    folder = write_synthesis(tmp_path / "corpus", *events)
    watching = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "watch", str(folder), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        page.goto(re.search(r"http://\S+", watching.stdout.readline())[0])
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#numbers")).to_contain_text("400 of 1,000")
        expect(page.locator("#overview")).to_contain_text("Hosts starting or lost, 58 %")
        expect(page.locator(".time-legend")).to_contain_text("tokenizing")
        expect(page.locator("#curves h3:visible")).to_have_text("Throughput (lines/s)")
        write_synthesis(folder, SynthesisEnded(reason="interrupted"))
        expect(page.locator("#state")).to_have_text("interrupted")
        page.goto("about:blank")
    finally:
        watching.terminate()
        watching.communicate()


def test_the_page_opens_with_three_sentences_and_the_use_of_time(page, report):
    page.goto(report)
    how, limit, advice = page.locator("#overview p").all_inner_texts()
    assert how.startswith("How it goes\nRunning: step 3,000 of 5,000 after 50 min")
    assert limit.startswith("What limits it\nNothing unusual: the GPU computes")
    assert advice.startswith("What to do\nLet it run: the steps to come would lower the validation loss by about")
    parts = page.locator(".time-bar > span")
    widths = parts.evaluate_all("parts => parts.map((each) => each.getBoundingClientRect().width)")
    bar = page.locator(".time-bar").bounding_box()
    assert max(widths) > 0.7 * bar["width"], "computing took most of the time"
    assert sum(widths) == pytest.approx(bar["width"], rel=0.05), "the rest is gaps between the parts"
    first = page.locator(".time-legend li").first.inner_text()
    assert re.fullmatch(r"compute\s+42 min 00 s\s+83 %", first)
    below = page.locator("#answers").bounding_box()["y"]
    assert page.locator("#overview").bounding_box()["y"] < bar["y"] < below


def test_several_runs_open_with_their_comparison(page, report):
    page.goto(report)
    expect(page.locator("#preference")).to_contain_text("Rather running: BLEU 34.0 against 33.6 of finished (+0.5)")
    expect(page.locator("#comparison table")).to_contain_text("validation loss at step 2,000")
    expect(page.locator("#topics")).to_contain_text("training.steps: running 5,000, finished 2,000")
    chart = page.locator("#comparison-charts .chart").nth(1)
    chart.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    expect(chart.locator("output")).to_contain_text("min")
    page.keyboard.press("+")
    expect(page.locator("#reset-zoom")).to_be_visible()
    page.locator("#reset-zoom").click()
    expect(page.locator("#reset-zoom")).to_be_hidden()


def test_evaluation_sets_are_shown_side_by_side(page, tmp_path):
    news = {"news": {"loss": 2.5, "nll": 2.25, "bleu": 20.5, "chrf": None, "target_tokens": 90}}
    recorded = [replace(each, sets=news) if isinstance(each, EvaluationDone) else each for each in synthetic_run(200)]
    path, run = tmp_path / "report.html", write_run(tmp_path / "run", recorded)
    path.write_text(render(**summarize_runs([run], [build_history(recorded)], recorded[-1].at_s, untested)))
    page.goto(path.as_uri())
    rows = [row.split("\t") for row in page.locator("#evaluation-sets tbody tr").all_inner_texts()]
    assert [row[:3] for row in rows if row[1] == "last"] == [["validation", "last", "200"], ["news", "last", "200"]]
    assert rows[-1][3:] == ["2.250", "20.5", "-", "-"]
    for chart in ("Loss (nats per target token)", "BLEU"):
        legend = page.locator(".chart", has=page.locator(f"h3:text-is('{chart}')")).locator(".legend")
        expect(legend).to_contain_text("news")


def test_gains_and_losses_of_fine_tuning_are_shown(page, tmp_path):
    recorded = fine_tuned_run((2.0, 1.7, 1.6), news=(30, 29, 28))
    path, run = tmp_path / "report.html", write_run(tmp_path / "run", recorded)
    path.write_text(render(**summarize_runs([run], [build_history(recorded)], recorded[-1].at_s, untested)))
    page.goto(path.as_uri())
    expect(page.locator("#overview")).to_contain_text("It began with models/opus (MarianMT, en-de)")
    expect(page.locator("#fine-tuning")).to_contain_text("gained 4.0 BLEU (3.7 to 4.3) on the validation set")
    expect(page.locator("#evaluation-sets")).to_contain_text("-2.0 (-2.3 to -1.7)")


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
    assert_all_fits(page)
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()


def assert_all_fits(page):
    """Neither the page nor one of its tables is wider than the screen."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    too_wide = "tables => tables.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)"
    assert page.locator(".scroll").evaluate_all(too_wide) == [], "no table is cut off"


def test_a_phone_shows_all_of_the_report_of_a_distillation(page, tmp_path):
    path = tmp_path / "distillation.html"
    page.set_viewport_size(NARROW)
    path.write_text(distillation_report.to_html(DISTILLATION))
    page.goto(path.as_uri())
    assert_all_fits(page)
    path.write_text(distillation_report.to_html({**DISTILLATION, "name": "n" * 80, "currency": "currency" * 20}))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only the table scrolls"


def test_a_phone_shows_all_of_the_page_that_compares_two_systems(page, tmp_path):
    names = ("runs/transformer-base-en-de", "a" * 80)
    outputs = [["Das ist ein Haus.", "x" * 200, "Er liest."], ["Dies ist das Haus.", "y" * 200, "Er liest."]]
    references = ["Das ist ein Haus.", "z" * 200, "Er liest."]
    found = comparison_page.sentence_differences(references, references, *outputs)
    path = tmp_path / "differences.html"
    path.write_text(comparison_page.as_html(names, compare(*outputs, references), found, 3))
    page.set_viewport_size(NARROW)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_chart_has_a_text_description(page, report):
    page.goto(report)
    labels = page.locator(".chart svg").evaluate_all("charts => charts.map((each) => each.getAttribute('aria-label'))")
    assert len(labels) == 8
    assert all(" from " in label for label in labels)

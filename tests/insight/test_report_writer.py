from dataclasses import replace

import pytest

from dragoman.errors import DragomanError
from dragoman.events import EvaluationDone
from dragoman.insight.report_writer import describe_time_use, read_report, to_markdown, write_html

from .synthetic_runs import synthetic_run, untested, write_run
from .test_page import embedded_data


def test_the_report_is_one_html_file(tmp_path):
    content = read_report([write_run(tmp_path / "run", synthetic_run(60))], untested)
    write_html(content, tmp_path / "report.html")
    assert embedded_data((tmp_path / "report.html").read_text())["runs"][0]["step"] == 60


def test_a_path_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(DragomanError, match="choose another --out"):
        write_html({"runs": [], "comparison": None}, tmp_path / "missing" / "report.html")


def test_markdown_has_all_answers_and_evaluations(tmp_path):
    content = read_report([write_run(tmp_path / "run", synthetic_run(300))], untested)
    summary, text = content["runs"][0], to_markdown(content)
    assert text.startswith("# synthetic\n")
    assert all(f"### {answer['question']}" in text for answer in summary["answers"])
    assert "| 300 |" in text


def test_markdown_has_the_scores_on_each_evaluation_set(tmp_path):
    news = {"news": {"loss": 2.5, "nll": 2.25, "bleu": 20.5, "chrf": None, "target_tokens": 90}}
    recorded = [replace(each, sets=news) if isinstance(each, EvaluationDone) else each for each in synthetic_run(80)]
    text = to_markdown(read_report([write_run(tmp_path / "run", recorded)], untested))
    assert "## Evaluation sets" in text
    assert "| news | last | 80 | 2.250 | 20.5 | - |" in text
    assert "| validation | first | 40 |" in text
    assert "## Evaluation sets" not in to_markdown(
        read_report([write_run(tmp_path / "one", synthetic_run(80))], untested)
    )


def test_markdown_opens_with_the_three_sentences(tmp_path):
    content = read_report([write_run(tmp_path / "run", synthetic_run(300))], untested)
    overview = content["runs"][0]["overview"]
    first_lines = to_markdown(content).splitlines()[2:5]
    assert first_lines == [
        f"- How it goes: {overview['how']}",
        f"- What limits it: {overview['limit']}",
        f"- What to do: {overview['advice']}",
    ]


def test_markdown_of_several_runs_opens_with_their_comparison(tmp_path):
    runs = [write_run(tmp_path / name, synthetic_run(60, overrides=[f"batch.seed={n}"])) for n, name in enumerate("ab")]
    text = to_markdown(read_report(runs, untested))
    assert text.startswith("# Comparison\n")
    assert "| | a | b |\n|---|---|---|\n" in text
    assert "| `batch.seed` | 0 | 1 |" in text
    assert text.index("# Comparison") < text.index("\n# a\n") < text.index("\n# b\n")


def test_the_use_of_time_names_the_largest_activities_first():
    summary = {"elapsed_s": 100.0, "between_sessions_s": 60.0, "time_use": {"a": 20.0, "b": 79.9, "c": 0.1}}
    assert describe_time_use(summary) == (
        "Where the 1 min 40 s went: b 80 %, a 20 %; not counted: 1 min 00 s between sessions."
    )

import pytest

from dragoman.errors import DragomanError
from dragoman.insight.report_writer import summarize_run, to_markdown, write_html

from .synthetic_runs import synthetic_run, write_run
from .test_page import embedded_data


def test_the_report_is_one_html_file(tmp_path):
    summary = summarize_run(write_run(tmp_path / "run", synthetic_run(60)))
    write_html([summary], tmp_path / "report.html")
    assert embedded_data((tmp_path / "report.html").read_text())["runs"][0]["step"] == 60


def test_a_path_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(DragomanError, match="choose another --out"):
        write_html([], tmp_path / "missing" / "report.html")


def test_markdown_has_all_answers_and_evaluations(tmp_path):
    summary = summarize_run(write_run(tmp_path / "run", synthetic_run(300)))
    text = to_markdown(summary)
    assert text.startswith("# synthetic\n")
    assert all(f"### {answer['question']}" in text for answer in summary["answers"])
    assert "| 300 |" in text

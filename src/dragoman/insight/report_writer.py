"""Report of runs: one self-contained HTML file, or Markdown."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError, write_remedy
from dragoman.files import write_atomic
from dragoman.insight.compared_run import SignificanceTest
from dragoman.insight.page import render
from dragoman.insight.report_content import ReportContent, summarize_runs
from dragoman.insight.run_history import read_history
from dragoman.insight.synthesis_history import is_synthesis
from dragoman.insight.synthesis_summary import summarize_syntheses
from dragoman.number_format import count, percent, span

REPORT_FILE = "report.html"
SENTENCES = {"how": "How it goes", "limit": "What limits it", "advice": "What to do"}
"""The sentences of the overview, with their labels."""
_SCORE_DIGITS = {"loss": 3, "bleu": 1, "chrf": 1}


def read_report(runs: Sequence[Path], test: SignificanceTest) -> ReportContent:
    """The content of the report of the runs, or syntheses, in these folders."""
    if any(map(is_synthesis, runs)):
        return {"runs": summarize_syntheses(runs, time.time()), "comparison": None}
    return summarize_runs(runs, [read_history(run) for run in runs], time.time(), test)


def write_html(content: ReportContent, path: Path) -> None:
    """Write the page of one or more runs."""
    try:
        write_atomic(path, render(**content))
    except OSError as error:
        raise DragomanError(
            f"{path} cannot be written ({error.strerror}): {write_remedy(error.strerror)}, or choose another --out."
        ) from None


def describe_time_use(summary: Mapping[str, Any]) -> str:
    """Where the time of the run went, in one line: the largest activities first."""
    elapsed_s = summary["elapsed_s"]
    largest_first = sorted(summary["time_use"].items(), key=lambda item: -item[1])
    parts = [f"{name} {percent(used_s / elapsed_s)}" for name, used_s in largest_first if used_s > 0.005 * elapsed_s]
    text = f"Where the {span(elapsed_s)} went: {', '.join(parts) or 'not known'}"
    if summary["between_sessions_s"] >= 1:
        text += f"; not counted: {span(summary['between_sessions_s'])} between sessions"
    return f"{text}."


def to_markdown(content: ReportContent) -> str:
    """The comparison, answers and evaluations of runs, without the charts."""
    parts = [] if content["comparison"] is None else [_comparison_markdown(content["comparison"])]
    return "\n".join([*parts, *map(_run_markdown, content["runs"])])


def _comparison_markdown(comparison: Mapping[str, Any]) -> str:
    lines = ["# Comparison", "", f"**{comparison['preference']}**", ""]
    lines += [f"- {each['topic']}: {each['text']}" for each in comparison["topics"]]
    columns = len(comparison["runs"])
    lines += ["", f"| | {' | '.join(comparison['runs'])} |", f"|---|{'---|' * columns}"]
    lines += [f"| {row['name']} | {' | '.join(row['values'])} |" for row in comparison["rows"]]
    lines += [f"| `{row['name']}` | {' | '.join(row['values'])} |" for row in comparison["settings"]]
    return "\n".join(lines) + "\n"


def _run_markdown(summary: Mapping[str, Any]) -> str:
    overview = summary["overview"]
    lines = [f"# {summary['run']}", "", *(f"- {label}: {overview[key]}" for key, label in SENTENCES.items())]
    lines += [f"- {warning}" for warning in overview["more"]]
    lines += ["", describe_time_use(summary)]
    for title, answers in (("Diagnoses", summary["diagnoses"]), (_answers_title(summary), summary["answers"])):
        if answers:
            lines += ["", f"## {title}"]
        for answer in answers:
            likely = " (likely)" if answer["confidence"] == "likely" else ""
            lines += ["", f"### {answer['question']}", "", f"**{answer['text']}**{likely}", ""]
            lines += [f"- {line}" for line in answer["evidence"]]
            lines += [f"- What to do: {answer['remedy']}"] if answer["remedy"] else []
    if summary["lost"]:
        lines += ["", "## Lost workers", ""]
        lines += [f"- {loss['worker']} after step {count(loss['step'])}: {loss['reason']}" for loss in summary["lost"]]
    if summary["evaluations"]:
        lines += ["", "## Evaluations", "", "| step | validation loss | BLEU | chrF |", "|---|---|---|---|"]
        lines += [f"| {count(done['step'])} | {_score_cells(done)} |" for done in summary["evaluations"]]
    if summary["evaluation_sets"]:
        lines += ["", "## Evaluation sets", "", "| set | evaluation | step | loss | BLEU | chrF |", f"|{'---|' * 6}"]
        lines += [
            f"| {row['name']} | {row['evaluation']} | {count(row['step'])} | {_score_cells(row)} |"
            for row in summary["evaluation_sets"]
        ]
    return "\n".join(lines) + "\n"


def _answers_title(summary: Mapping[str, Any]) -> str:
    return "Answers" if summary.get("kind") == "synthesis" else "Eleven answers"


def _score_cells(scores: Mapping[str, Any]) -> str:
    cells = ("-" if scores[name] is None else f"{scores[name]:.{digits}f}" for name, digits in _SCORE_DIGITS.items())
    return " | ".join(cells)

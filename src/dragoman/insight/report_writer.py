"""Report of runs: one self-contained HTML file, or Markdown."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.files import write_atomic
from dragoman.insight.page import render
from dragoman.insight.run_history import read_history
from dragoman.insight.run_summary import summarize
from dragoman.number_format import count, span

REPORT_FILE = "report.html"
_SCORE_DIGITS = {"loss": 3, "bleu": 1, "chrf": 1}


def summarize_run(run: Path) -> dict[str, Any]:
    """The summary of the run in a folder."""
    return summarize(read_history(run), time.time())


def write_html(summaries: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the page of one or more runs."""
    try:
        write_atomic(path, render(summaries))
    except OSError as error:
        raise DragomanError(f"{path} cannot be written ({error.strerror}): choose another --out.") from None


def to_markdown(summary: dict[str, Any]) -> str:
    """The answers and evaluations of a run, without the charts."""
    progress = f"{count(summary['step'])} of {count(summary['total_steps'])} steps, {span(summary['elapsed_s'])}"
    lines = [f"# {summary['run']}", "", f"{summary['state']}: {progress}", ""]
    lines += [f"- {headline}" for headline in summary["headlines"]]
    for title, answers in (("Diagnoses", summary["diagnoses"]), ("Eleven answers", summary["answers"])):
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
        for done in summary["evaluations"]:
            scores = (
                "-" if done[name] is None else f"{done[name]:.{digits}f}" for name, digits in _SCORE_DIGITS.items()
            )
            lines.append(f"| {count(done['step'])} | {' | '.join(scores)} |")
    return "\n".join(lines) + "\n"


def _score(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"

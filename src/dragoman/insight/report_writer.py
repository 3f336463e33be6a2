"""A run's report: one HTML file for people, Markdown for notes, JSON for scripts."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from dragoman.errors import DragomanError
from dragoman.files import write_atomic
from dragoman.insight.page import render
from dragoman.insight.run_history import read_history
from dragoman.insight.run_summary import digest
from dragoman.terminal import count, span

REPORT_FILE = "report.html"


def read_digest(run: Path) -> dict[str, Any]:
    """What the report says, for scripts."""
    return digest(read_history(run), time.time())


def report(runs: Sequence[Path], out: Path | None, console: Console) -> None:
    """Write the page, self-contained, beside the first run's logs or where it is wanted; say what matters most."""
    contents = [read_digest(run) for run in runs]
    path = out or runs[0] / REPORT_FILE
    try:
        write_atomic(path, render(contents))
    except OSError as error:
        raise DragomanError(f"{path} cannot be written ({error.strerror}): choose another --out.") from None
    for content in contents:
        name = "" if len(contents) == 1 else f"{content['run']}: "
        for line in content["short"]:
            console.print(escape(name + line), highlight=False)
    console.print(f"The whole report: {escape(str(path))}", highlight=False, soft_wrap=True)


def as_markdown(content: dict[str, Any]) -> str:
    """The answers in words, without the charts."""
    progress = f"{count(content['step'])} of {count(content['total_steps'])} steps, {span(content['elapsed_s'])}"
    lines = [
        f"# {content['run']}",
        "",
        f"{content['state']}: {progress}",
        "",
        *(f"- {line}" for line in content["short"]),
    ]
    for title, answers in (("What limits it", content["limits"]), ("Eleven answers", content["answers"])):
        if answers:
            lines += ["", f"## {title}"]
        for answer in answers:
            sure = " (likely)" if answer["sure"] == "likely" else ""
            lines += ["", f"### {answer['question']}", "", f"**{answer['verdict']}**{sure}", ""]
            lines += [f"- {line}" for line in answer["evidence"]]
            lines += [f"- What to do: {answer['remedy']}"] if answer["remedy"] else []
    if content["evaluations"]:
        lines += ["", "## Evaluations", "", "| step | validation loss | BLEU | chrF |", "|---|---|---|---|"]
        for done in content["evaluations"]:
            scores = ("-" if done[name] is None else f"{done[name]:.{digits}f}" for name, digits in _COLUMNS)
            lines.append(f"| {count(done['step'])} | {' | '.join(scores)} |")
    return "\n".join(lines) + "\n"


_COLUMNS = (("loss", 3), ("bleu", 1), ("chrf", 1))

"""Content of a report of one or more runs: their summaries, and the comparison of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from dragoman.insight.compared_run import SignificanceTest, name_runs, open_compared_run
from dragoman.insight.run_comparison import compare_runs
from dragoman.insight.run_history import RunHistory
from dragoman.insight.run_summary import summarize


class ReportContent(TypedDict):
    """Everything that the page shows, as JSON."""

    runs: list[dict[str, Any]]
    """A summary of each run."""
    comparison: dict[str, Any] | None
    """None for a single run."""


def summarize_runs(
    paths: Sequence[Path], histories: Sequence[RunHistory], now_s: float, test: SignificanceTest
) -> ReportContent:
    """The content of the report of the runs in these folders. Several have names that tell them apart."""
    summaries = [summarize(history, now_s) for history in histories]
    if len(paths) == 1:
        return {"runs": summaries, "comparison": None}
    names = name_runs(paths)
    named = [{**summary, "run": name} for summary, name in zip(summaries, names, strict=True)]
    compared = [
        open_compared_run(name, path, history, now_s)
        for name, path, history in zip(names, paths, histories, strict=True)
    ]
    return {"runs": named, "comparison": compare_runs(compared, test)}

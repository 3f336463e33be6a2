import io
import json
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner

from dragoman.cli import app
from dragoman.commands.report import write_report

from ..insight.synthetic_runs import synthetic_run, write_run


def report(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert result.exit_code == 0
    return result.output


def test_the_report_is_written_into_the_run_directory(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    console = Console(file=io.StringIO(), width=200)
    write_report([run], None, console)
    assert (run / "report.html").exists()
    how, limit, advice, *_ = console.file.getvalue().splitlines()
    assert how.startswith("How it goes: Finished at step 60 of 60 after 1 min 04 s")
    assert limit.startswith("What limits it: Nothing unusual")
    assert advice.startswith("What to do: Use `checkpoints/best-bleu` (step 60")
    assert console.file.getvalue().endswith(f"Report: {run / 'report.html'}\n")


def test_several_runs_are_compared_before_the_overview_of_each(tmp_path):
    runs = [write_run(tmp_path / name, synthetic_run(60)) for name in ("first", "second")]
    console = Console(file=io.StringIO(), width=200)
    write_report(runs, tmp_path / "comparison.html", console)
    assert (tmp_path / "comparison.html").exists()
    text = console.file.getvalue()
    assert text.startswith(
        "No difference in BLEU (first 16.2, second 16.2), nor in cost between first and second: prefer"
    )
    assert text.count("How it goes: Finished") == 2


def test_markdown_and_json_are_printed(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    assert report(run, "--markdown").startswith("# synthetic\n")
    assert json.loads(report(run, "--json"))["step"] == 60
    several = json.loads(report(run, run, "--json"))
    assert [summary["run"] for summary in several["runs"]] == ["run", "run (2)"]
    assert several["comparison"]["runs"] == ["run", "run (2)"]

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
    assert console.file.getvalue().startswith("The run took 1 min 04 s.\n")
    assert console.file.getvalue().endswith(f"Report: {run / 'report.html'}\n")


def test_the_headlines_of_several_runs_have_their_names(tmp_path):
    runs = [write_run(tmp_path / name, synthetic_run(60)) for name in ("first", "second")]
    console = Console(file=io.StringIO(), width=200)
    write_report(runs, tmp_path / "comparison.html", console)
    assert (tmp_path / "comparison.html").exists()
    assert console.file.getvalue().count("synthetic: The run took") == 2


def test_markdown_and_json_are_printed(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    assert report(run, "--markdown").startswith("# synthetic\n")
    assert json.loads(report(run, "--json"))["step"] == 60
    assert len(json.loads(report(run, run, "--json"))) == 2

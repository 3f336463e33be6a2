import io

from rich.console import Console

from dragoman.events import RunEnded, RunStarted
from dragoman.launch.host_output import HostOutput
from dragoman.recipe import resolve

STARTED = RunStarted(
    run="base", version="1", torch_version="2", world_size=2, device="CPU", host="a", parameters=10, precision="fp32",
    data_hash="x", resumed_step=0, total_steps=10, settings={},
)  # fmt: skip


def make(*labels: str, **options: bool) -> tuple[HostOutput, io.StringIO]:
    shown = io.StringIO()
    view = HostOutput(Console(file=shown, width=60, **options), resolve("tiny").settings)
    view.label(labels)
    return view, shown


def test_lines_start_with_the_name_of_their_worker():
    view, shown = make("a", "b rank 2")
    view.line("a", "hello [bold]not markup[/bold]")
    view.line("b rank 2", "x" * 100)
    assert shown.getvalue().splitlines() == ["a        | hello [bold]not markup[/bold]", f"b rank 2 | {'x' * 100}"]


def test_names_are_coloured_on_a_terminal_only():
    for is_terminal in (True, False):
        view, shown = make("a", "b", force_terminal=is_terminal)
        view.line("b", "hello")
        assert ("\x1b[" in shown.getvalue()) == is_terminal


def test_an_error_that_all_workers_report_is_shown_once():
    view, shown = make("a", "b")
    for label in ("a", "b"):
        view.line(label, "error: there is no such recipe")
        view.line(label, "warning: all may say this")
    assert shown.getvalue().count("error:") == 1
    assert shown.getvalue().count("warning:") == 2
    view.end_attempt()
    view.line("b", "error: there is no such recipe")
    assert shown.getvalue().count("error:") == 2


def test_events_are_shown_as_train_shows_them():
    view, shown = make("a")
    view.event(STARTED)
    view.event(RunEnded(step=10, reason="finished", elapsed_s=5.0))
    view.end_attempt()
    assert "base started" in shown.getvalue()
    assert "Finished after 10 steps" in shown.getvalue()

"""Terminal output."""

import io

from rich.console import Console

from dragoman.terminal import progress_bars


def test_a_log_shows_the_start_and_the_end_of_each_task():
    shown = io.StringIO()
    with progress_bars(Console(file=shown)) as progress:
        for done in range(5):
            progress("Encoding", done, 4)
    assert shown.getvalue().splitlines() == ["Encoding", "Encoding: 4 of 4"]


def test_a_log_shows_what_is_said_about_a_task_once_in_a_while():
    shown = io.StringIO()
    with progress_bars(Console(file=shown)) as progress:
        progress("Translating", 0, 4)
        for _ in range(5):
            progress.note("2 h left [measured]")
    assert shown.getvalue().splitlines() == ["Translating", "2 h left [measured]"]


def test_a_terminal_shows_what_is_said_about_a_task_below_its_bar_and_no_other_time_left():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress_bars(console) as progress:
        progress("Translating", 1, 4)
        progress.note("2 h left [measured]")
        with console.capture() as during:
            console.print(*progress.get_renderables())
        progress("Writing", 1, 4)
        with console.capture() as after:
            console.print(*progress.get_renderables())
    assert "2 h left [measured]" in during.get()
    assert "/s" not in during.get()
    assert "2 h left" not in after.get()

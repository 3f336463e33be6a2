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

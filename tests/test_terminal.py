"""What commands show while they work."""

import io

from rich.console import Console

from dragoman.terminal import progress_bars


def test_a_log_tells_the_beginning_and_the_end_of_each_part():
    shown = io.StringIO()
    with progress_bars(Console(file=shown)) as progress:
        for done in range(5):
            progress("Encoding", done, 4)
    assert shown.getvalue().splitlines() == ["Encoding", "Encoding: 4 of 4"]

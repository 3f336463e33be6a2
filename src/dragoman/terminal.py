"""Terminal output: progress bars and tables."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from dragoman.number_format import count, span
from dragoman.progress_callback import Progress, no_progress
from dragoman.worker_environment import QUIET

PLAIN_INTERVAL_S = 10.0


def shows_bars(console: Console) -> bool:
    """True on a terminal, and in a notebook with widgets."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def table(*columns: str, title: str | None = None, right: Sequence[int] = ()) -> Table:
    """A table without borders; the column indexes in `right` are right-aligned."""
    borderless = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for index, column in enumerate(columns):
        borderless.add_column(column, justify="right" if index in right else "left", overflow="fold")
    return borderless


class _CountColumn(ProgressColumn):
    """Units done, and the total if known."""

    def render(self, task: Task) -> Text:
        if not task.completed:
            return Text("")
        total = "" if task.total is None or task.finished else f" of {count(task.total)}"
        return Text(f"{count(task.completed)}{total}")


class _RateColumn(ProgressColumn):
    """Units per second, and the time left if the total is known."""

    def render(self, task: Task) -> Text:
        if task.finished or not task.speed:
            return Text("")
        rate = f"{count(task.speed)}/s" if task.speed >= 10 else f"{task.speed:.1f}/s"
        if task.time_remaining is None or task.total is None:
            return Text(rate, style="dim")
        return Text(f"{rate}, {span(task.time_remaining)} left", style="dim")


@contextlib.contextmanager
def progress_bars(console: Console) -> Iterator[Progress]:
    """Progress bars on a terminal or in a notebook; elsewhere, a plain line every `PLAIN_INTERVAL_S` seconds."""
    if os.environ.get(QUIET):
        yield no_progress
        return
    if not shows_bars(console):
        yield _plain_lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _CountColumn(), TimeElapsedColumn(), _RateColumn())
    with RichProgress(*columns, console=console) as bars:
        tasks: dict[str, int] = {}

        def show(task: str, done: int, total: int | None) -> None:
            if task not in tasks:
                for earlier in tasks.values():  # A task without a known total is done when the next one starts.
                    bars.update(bars.task_ids[earlier], total=bars.tasks[earlier].completed)
                tasks[task] = len(bars.tasks)
                bars.add_task(task, total=total)
            bars.update(bars.task_ids[tasks[task]], completed=done, total=total)

        yield show
        for index in tasks.values():
            bars.update(bars.task_ids[index], total=bars.tasks[index].completed)


@contextlib.contextmanager
def showing_progress(progress: Progress | None) -> Iterator[Progress]:
    """The given callback, or progress bars if there is none."""
    if progress is not None:
        yield progress
        return
    with progress_bars(Console(stderr=True)) as bars:
        yield bars


def _plain_lines(console: Console) -> Progress:
    last_shown_at: dict[str, float] = {}

    def show(task: str, done: int, total: int | None) -> None:
        if task in last_shown_at and time.monotonic() - last_shown_at[task] < PLAIN_INTERVAL_S and done != total:
            return
        last_shown_at[task] = time.monotonic()
        so_far = "" if done == 0 else f": {count(done)}" if total is None else f": {count(done)} of {count(total)}"
        console.print(f"{task}{so_far}", highlight=False)

    return show

"""Terminal output: progress bars and tables."""

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
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
        if task.finished or not task.speed or task.fields.get("has_note"):  # The note has them.
            return Text("")
        rate = f"{count(task.speed)}/s" if task.speed >= 10 else f"{task.speed:.1f}/s"
        if task.time_remaining is None or task.total is None:
            return Text(rate, style="dim")
        return Text(f"{rate}, {span(task.time_remaining)} left", style="dim")


class ProgressBars(RichProgress):
    """A bar for each task, and sentences about the present one below them."""

    def __init__(self, console: Console) -> None:
        self._note = Text("")
        self._ids: dict[str, TaskID] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), _CountColumn(), TimeElapsedColumn(), _RateColumn())
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._note:
            yield self._note

    def __call__(self, task: str, done: int, total: int | None) -> None:
        if task not in self._ids:
            self.end()
            self._ids[task] = self.add_task(task, total=total)
        self.update(self._ids[task], completed=done, total=total)

    def note(self, text: str) -> None:
        self._note = Text(text, style="dim")
        self.update(self.task_ids[-1], has_note=True)

    def end(self) -> None:
        """Complete all tasks: one without a known total is done when the next one starts."""
        self._note = Text("")
        for task in self.tasks:
            self.update(task.id, total=task.completed)


class PlainProgress:
    """A line at the start and the end of each task, and every `PLAIN_INTERVAL_S` seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_at_s: dict[str, float] = {}

    def __call__(self, task: str, done: int, total: int | None) -> None:
        if self._is_due(task) or done == total:
            so_far = "" if done == 0 else f": {count(done)}" if total is None else f": {count(done)} of {count(total)}"
            self._console.print(f"{task}{so_far}", highlight=False)

    def note(self, text: str) -> None:
        if self._is_due("note"):
            self._console.print(text, highlight=False, markup=False)

    def _is_due(self, kind: str) -> bool:
        now_s = time.monotonic()
        if now_s - self._shown_at_s.get(kind, -math.inf) < PLAIN_INTERVAL_S:
            return False
        self._shown_at_s[kind] = now_s
        return True


@contextlib.contextmanager
def progress_bars(console: Console) -> Iterator[Progress]:
    """Progress bars on a terminal or in a notebook; elsewhere plain lines."""
    if os.environ.get(QUIET):
        yield no_progress
    elif shows_bars(console):
        with ProgressBars(console) as bars:
            yield bars
            bars.end()
    else:
        yield PlainProgress(console)


@contextlib.contextmanager
def showing_progress(progress: Progress | None) -> Iterator[Progress]:
    """The given callback, or progress bars if there is none."""
    if progress is not None:
        yield progress
        return
    with progress_bars(Console(stderr=True)) as bars:
        yield bars

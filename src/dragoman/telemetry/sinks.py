"""Live views of a run's events: TensorBoard, and the terminal or a log of JSON lines."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dragoman import events
from dragoman.events import Event
from dragoman.number_format import count, span
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.curve_points import evaluation_scalars, is_on_curve, step_scalars
from dragoman.telemetry.event_messages import message_for
from dragoman.telemetry.json_log import JsonLog
from dragoman.telemetry.remaining_time import describe_remaining_time
from dragoman.telemetry.score_gains import describe_gains, read_gains
from dragoman.telemetry.throughput import ThroughputMeter
from dragoman.terminal import PLAIN_INTERVAL_S, shows_bars
from dragoman.worker_environment import QUIET

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BAR_INTERVAL_S = 0.1
"""Time between updates of the progress bar."""
SHOWN_SHARE_CHANGE = 0.1
"""Batch shares are shown again when one has changed by this much: smaller changes are noise."""
CURVE_INTERVAL_S = 0.1
"""TensorBoard gets no more than one step in this time: to write five curves takes as long as a short step does."""
LEVEL_STYLES = {"detail": "dim", "info": "", "warning": "yellow", "error": "bold red"}
"""Rich style of a message by its level."""


class Sink(Protocol):
    """A consumer of events."""

    def record(self, event: Event) -> None: ...

    def close(self) -> None: ...


class TensorBoardSink:
    """Writes the usual scalars, and samples as text. Write errors are ignored: a full disk must not stop training."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # Slow import that only one worker needs.

        self._writer: SummaryWriter | None = None
        self._curve_at_s = -math.inf
        with contextlib.suppress(OSError):
            # A resumed run repeats the steps after its last checkpoint: purge what was written for them.
            self._writer = SummaryWriter(str(folder), purge_step=first_step + 1)

    def record(self, event: Event) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._write(event, self._writer)

    def _write(self, event: Event, writer: "SummaryWriter") -> None:
        if isinstance(event, events.StepDone):
            is_dense = event.at_s - self._curve_at_s < CURVE_INTERVAL_S
            if is_dense or not is_on_curve(event.step):
                return
            self._curve_at_s = event.at_s
            _add(writer, step_scalars(event), event.step)
        elif isinstance(event, events.EvaluationDone):
            _add(writer, evaluation_scalars(event), event.step)
            text = "\n\n".join(
                f"**source** {sample['source']}  \n**reference** {sample['reference']}  \n"
                f"**translation** {sample['translation']}"
                for sample in event.samples
            )
            if text:
                writer.add_text("eval/samples", text, event.step)
            writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


def _add(writer: "SummaryWriter", scalars: dict[str, float], step: int) -> None:
    for name, value in scalars.items():
        writer.add_scalar(name, value, step)


class TerminalSink:
    """A progress bar on a terminal, or occasional lines elsewhere. Evaluations are the rows of a table."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._throughput = ThroughputMeter(settings)
        self._total = settings.training.steps
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._is_quiet = bool(os.environ.get(QUIET))
        if shows_bars(console) and not self._is_quiet:
            columns = (TextColumn("[bold]{task.completed:,}[/bold] of {task.total:,} steps"), BarColumn(bar_width=24))
            self._bar = Progress(*columns, TextColumn("{task.description}"), console=console, transient=True)
            self._task = self._bar.add_task("starting", total=self._total)
            self._bar.start()
        self._shown_at_s = -math.inf
        self._loss = math.nan
        self._shown_source = ""
        self._header_due = True
        self._shares: list[float] = []

    def record(self, event: Event) -> None:
        self._throughput.record(event)
        if self._is_quiet:
            self._show_message(event, ("warning", "error"))
        elif isinstance(event, events.StepDone):
            self._show_step(event)
        elif isinstance(event, events.EvaluationDone):
            self._show_evaluation(event)
        elif isinstance(event, events.SharesChanged):
            self._show_shares(event)
        else:
            self._show_message(event)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show_step(self, event: events.StepDone) -> None:
        # Smoothed: a number that jumps with every batch is hard to read.
        self._loss = event.nll if math.isnan(self._loss) else 0.9 * self._loss + 0.1 * event.nll
        # A GPU may take hundreds of steps a second: nobody could read so many updates, and they take time.
        interval_s = PLAIN_INTERVAL_S if self._bar is None else BAR_INTERVAL_S
        if time.monotonic() - self._shown_at_s < interval_s:
            return
        self._shown_at_s = time.monotonic()
        speed = self._throughput
        left = describe_remaining_time(speed.remaining_time)
        text = f"loss {self._loss:.3f}  {count(speed.tokens_per_s)} tokens/s  {left}"
        if self._bar is not None:
            self._bar.update(self._task, completed=event.step, description=text)
        else:
            self._print(f"step {count(event.step)} of {count(self._total)}  {text}")

    def _show_evaluation(self, event: events.EvaluationDone) -> None:
        if self._header_due:
            self._header_due = False
            self._print("[dim]    step  train loss  valid loss  perplexity    BLEU    chrF    time[/dim]")
        scores = _score_columns(event.nll, event.bleu, event.chrf)
        train_loss = "-" if math.isnan(self._loss) else f"{self._loss:.3f}"
        self._print(f"{event.step:>8,}  {train_loss:>10}  {scores}  {span(event.evaluation_s):>6}")
        for name, each in event.sets.items():
            self._print(f"{name:>20}  {_score_columns(each['nll'], each['bleu'], each['chrf'])}")
        if event.gains:
            self._print(f"[dim]since step 0:[/dim] {describe_gains(read_gains(event.gains))}")
        if event.samples:
            sample = event.samples[0]
            if sample["source"] != self._shown_source:
                self._shown_source = sample["source"]
                self._print(f"[dim]          {escape(self._shown_source)}[/dim]")
            self._print(f"[dim]       ->[/dim] {escape(sample['translation']) or '[dim](empty)[/dim]'}")

    def _show_shares(self, event: events.SharesChanged) -> None:
        """Show the shares if one has changed enough since they were last shown. At first they are equal."""
        workers = len(event.shares)
        shown = self._shares if len(self._shares) == workers else [1 / workers] * workers
        if max(abs(share - before) for share, before in zip(event.shares, shown, strict=True)) >= SHOWN_SHARE_CHANGE:
            self._shares = event.shares
            shares = " : ".join(f"{100 * share:.0f}" for share in event.shares)
            self._print(f"Batch shares from step {count(event.step + 1)} on: {shares} %.")

    def _show_message(self, event: Event, levels: Collection[str] = tuple(LEVEL_STYLES)) -> None:
        if (message := message_for(event)) is not None and message.level in levels:
            self._console.print(message.text, style=LEVEL_STYLES[message.level], highlight=False, markup=False)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False)


def _score_columns(nll: float | None, bleu: float | None, chrf: float | None) -> str:
    """Loss, perplexity, BLEU and chrF, aligned."""
    perplexity = None if nll is None else math.exp(min(nll, 700.0))
    columns = ((nll, 10, 3), (perplexity, 10, 2), (bleu, 6, 1), (chrf, 6, 1))
    return "  ".join(f"{'-' if value is None else f'{value:.{digits}f}':>{width}}" for value, width, digits in columns)


def open_sinks(settings: Settings) -> list[Sink]:
    """The terminal's view of a run, or its log."""
    if settings.telemetry.log_format == "json":
        return [JsonLog(sys.stdout, settings)]
    # Open MPI gives workers a pseudo-terminal even if its own output goes to a file: no bar, and no colours.
    is_terminal = False if "OMPI_COMM_WORLD_RANK" in os.environ else None
    # What remains of a quiet run are warnings and errors.
    file = sys.stderr if os.environ.get(QUIET) else sys.stdout
    return [TerminalSink(Console(file=file, force_terminal=is_terminal), settings)]


def say(settings: Settings, message: str) -> None:
    """Show a warning that is not about an event."""
    if settings.telemetry.log_format == "json":
        JsonLog(sys.stdout, settings).say(message, "warning")
    else:
        print(message, flush=True)


def open_curves(run: RunFolder, first: Event) -> Sink:
    """The TensorBoard curves of a run folder, from the first event to show on."""
    first_step = first.resumed_step if isinstance(first, events.RunStarted) else getattr(first, "step", 0)
    return TensorBoardSink(run.tensorboard, first_step)

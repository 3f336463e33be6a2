"""All hosts in one terminal: the run's own view, and around it what each host says, with its name before it."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from dragoman.events import Event, RunStarted
from dragoman.settings import Settings
from dragoman.telemetry.sinks import TerminalSink

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class View:
    """What the launcher shows."""

    def __init__(self, console: Console, settings: Settings, labels: Sequence[str]) -> None:
        self._console = console
        self._settings = settings
        self._width = max(len(label) for label in labels)
        self._colours = {label: COLOURS[index % len(COLOURS)] for index, label in enumerate(labels)}
        self._sink: TerminalSink | None = None
        self._mistakes: set[str] = set()

    def event(self, event: Event) -> None:
        """Show an event as the first worker would, had it a terminal."""
        if self._sink is None and isinstance(event, RunStarted):
            self._sink = TerminalSink(self._console, self._settings)
        if self._sink is not None:
            self._sink.record(event)

    def line(self, label: str, text: str) -> None:
        """Show what a host said. A mistake that all workers report is shown once."""
        if text.startswith("error: "):
            if text in self._mistakes:
                return
            self._mistakes.add(text)
        prefix = Text(f"{label:<{self._width}} | ", style=self._colours[label])
        self._console.print(prefix + Text.from_ansi(text), soft_wrap=True)

    def say(self, sentence: str) -> None:
        """Say something in the launcher's own name."""
        self._console.print(Text(sentence), soft_wrap=True)

    def end_attempt(self) -> None:
        """Take the progress bar away: the workers are gone."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._mistakes.clear()

"""The output of all hosts in one terminal: the progress of the run, and other lines with the name of their host."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from dragoman.events import Event, RunStarted
from dragoman.launch.exit_name import exit_name
from dragoman.settings import Settings
from dragoman.telemetry.json_log import JsonLog
from dragoman.telemetry.sinks import LEVEL_STYLES, Sink, TerminalSink

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class HostOutput:
    """View of a launch on a console."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings
        self._log = JsonLog(sys.stdout, settings) if settings.telemetry.log_format == "json" else None
        self._width = 0
        self._colours: dict[str, str] = {}
        self._sink: Sink | None = None
        self._shown_errors: set[str] = set()
        self._last_lines: dict[str, str] = {}
        """The last line of each worker."""

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def label(self, labels: Sequence[str]) -> None:
        """Set the names of all workers, which are aligned and get a colour each."""
        self._width = max(len(label) for label in labels)
        self._colours = {label: COLOURS[index % len(COLOURS)] for index, label in enumerate(labels)}

    def event(self, event: Event) -> None:
        """Show an event as `dragoman train` does."""
        if self._sink is None and isinstance(event, RunStarted):
            self._sink = self._log or TerminalSink(self._console, self._settings)
        if self._sink is not None:
            self._sink.record(event)

    def line(self, label: str, text: str) -> None:
        """Show a line that a worker printed. An error that all workers report is shown once."""
        self._last_lines[label] = text.strip() or self._last_lines.get(label, "")
        if text.startswith("error: "):
            if text in self._shown_errors:
                return
            self._shown_errors.add(text)
        if self._log is not None:
            self._log.say(text, worker=label)
            return
        prefix = Text(f"{label:<{self._width}} | ", style=self._colours[label])
        self._console.print(prefix + Text.from_ansi(text), soft_wrap=True)

    def exit_reason(self, label: str, exit_code: int) -> str:
        """How a worker ended: its signal, or its exit code and the last line that it printed."""
        line = self._last_lines.pop(label, "") if exit_code > 0 else ""
        return f"{exit_name(exit_code)}: {line}" if line else exit_name(exit_code)

    def say(self, sentence: str) -> None:
        """Show a message of the launcher itself."""
        self._say(sentence, "info")

    def warn(self, sentence: str) -> None:
        self._say(sentence, "warning")

    def _say(self, sentence: str, level: str) -> None:
        if self._log is not None:
            self._log.say(sentence, level)
        else:
            self._console.print(Text(sentence, style=LEVEL_STYLES[level]), soft_wrap=True)

    def end_attempt(self) -> None:
        """Remove the progress bar: the workers have exited."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._shown_errors.clear()

"""Overhead of checkpoints and telemetry in a training run.

    python -m benchmarks.training_overhead [--steps 60]

One run of the recipe `small` on the demo corpus, in this process. Telemetry: the time to record events (log, terminal,
TensorBoard), relative to the time of all steps. Checkpoints: the time for which training stops, plus the CPU time of
the writer thread, relative to the time between two checkpoints at the recipe's interval.
"""

import tempfile
import time
from pathlib import Path

from benchmarks.command_line import make_parser
from benchmarks.corpora import prepare_demo
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.distributed.cluster import join_cluster
from dragoman.event_log import EventLog
from dragoman.events import CheckpointSaved, Event, StepDone
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.sinks import open_sinks
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer


class TimedRecorder:
    """Passes events to a recorder, keeps them, and sums the time to record steps."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self.events: list[Event] = []
        self.steps_s = 0.0

    def __call__(self, event: Event) -> None:
        started_at = time.perf_counter()
        self._recorder.record(event)
        if isinstance(event, StepDone):
            self.steps_s += time.perf_counter() - started_at
        self.events.append(event)

    @property
    def steps(self) -> list[StepDone]:
        return [event for event in self.events if isinstance(event, StepDone)]


def train_in_process(settings: Settings, data: DataSet, run: RunFolder) -> tuple[Trainer, TimedRecorder]:
    """Train in this process. Returns the trainer, and its recorded events with the time to record them."""
    cluster = join_cluster()
    recorder = EventRecorder(run, EventLog(run.events_of(0)), cluster, lambda: open_sinks(settings), settings)
    timed = TimedRecorder(recorder)
    trainer = Trainer(settings, data, run, cluster, make_scorer(settings, data), timed, recorder.event_sync)
    trainer.train(StopSignal())
    recorder.close()
    cluster.close()
    return trainer, timed


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    overrides = [
        f"training.steps={parser.parse_args().steps}", "checkpoint.every=10", "evaluation.bleu=false",
        "evaluation.every=100000",
    ]  # fmt: skip
    interval = resolve("small").settings.checkpoint.every
    writer_s = 0.0
    write = Checkpoints._write

    def timed_write(self: Checkpoints, *arguments: object) -> None:
        nonlocal writer_s
        started_s = time.thread_time()
        write(self, *arguments)
        writer_s += time.thread_time() - started_s

    Checkpoints._write = timed_write  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_demo(Path(folder) / "data", "small")
        _, recorded = train_in_process(resolve("small", overrides).settings, data, RunFolder(Path(folder) / "run"))
    print_figures(
        "training_overhead", [telemetry_overhead(recorded), checkpoint_overhead(recorded, writer_s, interval)]
    )


def telemetry_overhead(recorded: TimedRecorder) -> Figure:
    record_s = recorded.steps_s / len(recorded.steps)
    step_s = mean_step_s(recorded)
    name = f"telemetry: {1e6 * record_s:.0f} us to record a step of {step_s:.2f} s"
    return Figure(name, f"{record_s / step_s:.3%}", "under 1 %", record_s / step_s)


def checkpoint_overhead(recorded: TimedRecorder, writer_s: float, interval_steps: int) -> Figure:
    saved = [event for event in recorded.events if isinstance(event, CheckpointSaved)]
    stall_s = sum(event.stall_s for event in saved) / len(saved)
    write_s = writer_s / len(saved)
    overhead = (stall_s + write_s) / (interval_steps * mean_step_s(recorded))
    parts = f"{1000 * stall_s:.0f} ms stall, {1000 * write_s:.0f} ms CPU time to write"
    name = f"checkpoints of {saved[0].size_bytes / 1e6:.0f} MB every {interval_steps} steps: {parts}"
    return Figure(name, f"{overhead:.3%}", "under 1 %", overhead)


def mean_step_s(recorded: TimedRecorder) -> float:
    return sum(event.step_s for event in recorded.steps) / len(recorded.steps)


if __name__ == "__main__":
    main()

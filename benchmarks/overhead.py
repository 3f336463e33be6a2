"""What checkpoints and telemetry cost a run.

    python -m benchmarks.overhead [--steps 60]

One run of the recipe `small` on the demo corpus, in this process. Telemetry: the time in which events are recorded
(log, terminal, TensorBoard), against the time of all steps. Checkpoints: the time for which training stands still, and
the processor time of the thread that writes, against the time between two checkpoints at the recipe's interval.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dragoman.corpus.dataset import DataSet
from dragoman.decoding.translation_judge import make_judge
from dragoman.distributed.cluster import join_cluster
from dragoman.event_log import EventLog
from dragoman.events import CheckpointSaved, Event, StepDone
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sinks import open_sinks
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer


class TimedRecording:
    """Passes events on, keeps them, and adds up how long recording steps takes."""

    def __init__(self, broadcast: EventRecorder) -> None:
        self._broadcast = broadcast
        self.events: list[Event] = []
        self.steps_s = 0.0

    def __call__(self, event: Event) -> None:
        started = time.perf_counter()
        self._broadcast.record(event)
        if isinstance(event, StepDone):
            self.steps_s += time.perf_counter() - started
        self.events.append(event)

    @property
    def steps(self) -> list[StepDone]:
        return [event for event in self.events if isinstance(event, StepDone)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    interval = resolve("small").settings.checkpoint.every
    settings = resolve(
        "small",
        [f"training.steps={options.steps}", "checkpoint.every=10", "evaluation.bleu=false", "evaluation.every=100000"],
    ).settings
    writer_s = 0.0
    write = Checkpoints._write

    def timed_write(self: Checkpoints, *arguments: object) -> None:
        nonlocal writer_s
        started = time.thread_time()
        write(self, *arguments)  # type: ignore[arg-type]
        writer_s += time.thread_time() - started

    Checkpoints._write = timed_write  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        command = [sys.executable, "-m", "dragoman", "prepare", "demo", "--recipe", "small", "--out", str(data)]
        subprocess.run(command, check=True, capture_output=True)
        cluster, run = join_cluster(), RunFolder(Path(name) / "run")
        broadcast = EventRecorder(
            run, EventLog(run.events_of(0)), cluster, lambda first: open_sinks(run, settings, first)
        )
        record = TimedRecording(broadcast)
        opened = DataSet(data)
        Trainer(settings, opened, run, cluster, make_judge(settings, opened), record, broadcast.event_sync).train(
            StopSignal()
        )
        broadcast.close()
    steps, recording_s = record.steps, record.steps_s
    saved = [event for event in record.events if isinstance(event, CheckpointSaved)]
    step_s = sum(event.step_s for event in steps) / len(steps)
    stall_s = sum(event.stall_s for event in saved) / len(saved)
    one_checkpoint_s = stall_s + writer_s / len(saved)
    telemetry = recording_s / len(steps) / step_s
    checkpoints = one_checkpoint_s / (interval * step_s)
    record_us, write_ms = 1e6 * recording_s / len(steps), 1000 * writer_s / len(saved)
    size_mb, still_ms = saved[0].size_bytes / 1e6, 1000 * stall_s
    print("\n| figure | measured | target |\n|---|---|---|")
    print(f"| telemetry: {record_us:.0f} us to record a step of {step_s:.2f} s | {telemetry:.3%} | under 1 % |")
    still = f"{still_ms:.0f} ms still, {write_ms:.0f} ms of a core to write"
    print(f"| checkpoints of {size_mb:.0f} MB, {still}, every {interval} steps | {checkpoints:.3%} | under 1 % |")
    print(json.dumps({"benchmark": "overhead", "telemetry": telemetry, "checkpoints": checkpoints, "step_s": step_s}))


if __name__ == "__main__":
    main()

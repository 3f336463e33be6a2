"""Cost of checkpoints on a GPU: a section of `benchmarks.insight`. Takes about a minute on an H200.

Standing still is what the run says of itself, by Python's clock. The whole cost of a checkpoint also contains what
writing it beside the training costs: the time of the steps around it, less that of as many ordinary steps.
"""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.command_line import NEVER
from benchmarks.corpora import prepare_multi30k
from benchmarks.forked_commands import run_forked
from benchmarks.reporting import Figure
from dragoman.events import CheckpointSaved, Event, StepDone
from dragoman.run_folder import RunFolder

RECIPE, STEPS, SAVE_EVERY = "transformer-base", 1600, 400
SETTINGS = (
    f"training.steps={STEPS}", f"checkpoint.every={SAVE_EVERY}", f"evaluation.every={NEVER}", "evaluation.bleu=false"
)  # fmt: skip
STEPS_AROUND = 150
"""Steps after a checkpoint in which it is written; the interval has more."""


def measure_gpu_checkpoints(corpora: Path) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_multi30k(Path(folder) / "data", RECIPE, corpora).path
        run_forked(Path(folder) / "log", "train", RECIPE, "--data", data, "--out", Path(folder) / "run", *SETTINGS)
        yield from judge_checkpoints(RunFolder(Path(folder) / "run").events())


def judge_checkpoints(events: Sequence[Event]) -> Iterator[Figure]:
    """Compare the stalls of checkpoints, and their whole cost, with the time of a step."""
    steps = {event.step: event for event in events if isinstance(event, StepDone)}
    saved = [event for event in events if isinstance(event, CheckpointSaved)]
    step_s = statistics.median(step.step_s for step in steps.values())
    stalls_s = [each.stall_s for each in saved]
    text = f"{1000 * statistics.median(stalls_s):.1f} ms (worst of {len(saved)}: {1000 * max(stalls_s):.1f} ms)"
    name = f"standing still for a checkpoint of {saved[0].size_bytes / 1e6:.0f} MB; a step takes {1000 * step_s:.1f} ms"
    yield Figure(name, text, "at most one step", max(stalls_s) / step_s)
    extra_s = [
        steps[each.step + STEPS_AROUND].at_s - steps[each.step].at_s - STEPS_AROUND * step_s
        for each in saved
        if each.step + STEPS_AROUND in steps
    ]
    text = f"{1000 * statistics.median(extra_s):.0f} ms: {statistics.median(extra_s) / step_s:.1f} steps"
    name = f"whole cost of a checkpoint: {STEPS_AROUND} steps after it against ordinary ones"
    yield Figure(name, text, "", statistics.median(extra_s))

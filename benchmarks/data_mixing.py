"""Two data sets mixed: the losses of one worker and of two, and those of a run that is killed again and again.

    python -m benchmarks.data_mixing [--kills 6] [--corpora FOLDER]

The recipe `tiny` with dropout, in float32, on a fiftieth of Multi30k and of the demo corpus in each epoch.
Each kill is SIGKILL to the whole process group; the same command then resumes the run.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.processes import losses, start, train, wait_for_steps

from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import CORPORA, prepare_multi30k
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.dataset import TOKENIZER_FILE
from dragoman.events import RunStarted, StepDone
from dragoman.run_folder import RunFolder

STEPS = 50
"""As in loss_curves: rounding errors grow with the steps, with one data set, too."""
TOLERANCE = 1e-4
SETTINGS = (
    f"training.steps={STEPS}", "checkpoint.every=5", f"evaluation.every={STEPS}", "evaluation.bleu=false",
    "training.precision=fp32", "exchange.method=plain", "schedule.policy=constant", "model.dropout=0.1",
    "model.attention_dropout=0.1", "model.activation_dropout=0.1",
)  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = prepare_multi30k(folder / "new", "tiny", options.corpora).path
        old = folder / "old"
        run_dragoman("prepare", "demo", "--recipe", "tiny", "--tokenizer", new / TOKENIZER_FILE, "--out", old)
        print_figures("data_mixing", measure(f"{new}@0.02", f"{old}@0.02", folder, options.kills))


def measure(new: str, old: str, folder: Path, kills: int) -> Iterator[Figure]:
    arguments = ("--data", old, *SETTINGS)
    for name, workers in (("one", 1), ("two", 2)):
        train(new, folder / name, *arguments, workers=workers, size=())
    one, two = losses(folder / "one"), losses(folder / "two")
    steps = [event for event in RunFolder(folder / "two").events() if isinstance(event, StepDone)]
    yield Figure("steps; epochs begun", f"{len(steps)}; {steps[-1].epoch + 1}", "", [len(steps), steps[-1].epoch + 1])
    difference = max(abs(two[step] - one[step]) / one[step] for step in one)
    yield Figure("largest relative difference of a loss: two workers", f"{difference:.1e}", f"{TOLERANCE}", difference)
    rng = random.Random(7)
    for kill in range(kills):
        process = start(new, folder / "killed", *arguments, size=())
        wait_for_steps(folder / "killed", (kill + 1) * STEPS // (kills + 1), process)
        time.sleep(rng.uniform(0, 0.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    train(new, folder / "killed", *arguments, size=())
    starts = [event.resumed_step for event in RunFolder(folder / "killed").events() if isinstance(event, RunStarted)]
    yield Figure("steps from which the killed run resumed", ", ".join(map(str, starts)), "", starts)
    is_same = losses(folder / "killed") == two
    yield Figure(f"all {STEPS} losses bit for bit those without kills", "yes" if is_same else "no", "yes", is_same)


if __name__ == "__main__":
    main()

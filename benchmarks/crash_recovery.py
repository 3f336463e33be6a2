"""Crashes: kill all workers of a run at random times, resume each time, and compare with an undisturbed run.

    python -m benchmarks.crash_recovery [--kills 20]

Two workers train on the demo corpus, with dropout. Each kill is SIGKILL to the whole process group at a random time,
during a step or while a checkpoint is written. The same command then resumes the run. Losses must be bit for bit those
of a run without kills.
"""

import os
import random
import signal
import tempfile
import time
from pathlib import Path

from tests.processes import losses, start, train, wait_for_steps

from benchmarks.command_line import make_parser
from benchmarks.corpora import prepare_demo
from benchmarks.reporting import Figure, print_figures
from dragoman.events import CheckpointRejected, CheckpointSaved, RunStarted
from dragoman.run_folder import RunFolder
from dragoman.training.checkpoint import find_damage, names

STEPS = 240
SETTINGS = (f"training.steps={STEPS}", "checkpoint.every=10", "evaluation.every=120", "evaluation.bleu=false")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    wanted_kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare_demo(folder / "data", "tiny").path
        train(data, folder / "undisturbed", *SETTINGS, size=())
        kills, lost = kill_and_resume(data, folder / "killed", wanted_kills)
        print_figures("crash_recovery", compare(folder, wanted_kills, kills, lost))


def kill_and_resume(data: Path, run: Path, wanted_kills: int) -> tuple[int, int]:
    """Train to the end in spite of kills. Returns the number of kills, and of checkpoints lost by them."""
    rng = random.Random(11)
    kills = lost = 0
    while kills < wanted_kills:
        before = max(losses(run), default=0)
        process = start(data, run, *SETTINGS, size=())
        wait_for_steps(run, before + 1, process)
        time.sleep(rng.uniform(0, 1.5))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
        lost += lost_newest_checkpoint(run)
    train(data, run, *SETTINGS, size=())
    return kills, lost


def lost_newest_checkpoint(run: Path) -> bool:
    """True if the checkpoint that the log reports last is missing or damaged."""
    checkpoints = run / "checkpoints"
    saved = [event for event in RunFolder(run).events() if isinstance(event, CheckpointSaved)]
    intact = [name for name in names(checkpoints) if not find_damage(checkpoints / name)]
    return bool(saved) and f"step-{saved[-1].step:08d}" not in intact


def compare(folder: Path, wanted_kills: int, kills: int, lost: int) -> list[Figure]:
    events = RunFolder(folder / "killed").events()
    killed, undisturbed = losses(folder / "killed"), losses(folder / "undisturbed")
    is_same = killed == undisturbed
    final = [killed[STEPS], undisturbed[STEPS]]
    resumed = [event.resumed_step for event in events if isinstance(event, RunStarted)]
    rejected = sum(isinstance(event, CheckpointRejected) for event in events)
    return [
        Figure("kills of all workers", str(kills), str(wanted_kills), kills),
        Figure("steps from which the run resumed", ", ".join(map(str, resumed)), "", resumed),
        Figure(
            f"all {STEPS} losses bit for bit those of the undisturbed run", "yes" if is_same else "no", "yes", is_same
        ),
        Figure("final loss of the killed run and of the undisturbed run", ", ".join(map(repr, final)), "equal", final),
        Figure("checkpoints lost; found damaged", f"{lost}; {rejected}", "0; 0", [lost, rejected]),
    ]


if __name__ == "__main__":
    main()

"""Kill all workers of a run at random moments, again and again: is the end bit for bit that of a run left in peace?

    python -m benchmarks.interruptions [--kills 20]

Two workers train the demo corpus with dropout on. Every kill is SIGKILL to the whole process group, at a moment drawn
by chance: in a step, or while a checkpoint is being written. Then the same command goes on.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.processes import losses, start, train, wait_for_steps

from dragoman.events import CheckpointRejected, CheckpointSaved, RunStarted
from dragoman.run_folder import RunFolder
from dragoman.training.checkpoint import find_damage, names

SETTINGS = ("training.steps=240", "checkpoint.every=10", "evaluation.every=120", "evaluation.bleu=false")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    chance = random.Random(11)
    kills, lost = 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        prepare = [sys.executable, "-m", "dragoman", "prepare", "demo", "--recipe", "tiny", "--out", str(data)]
        subprocess.run(prepare, check=True, capture_output=True)
        train(data, folder / "peace", *SETTINGS, size=())
        run = folder / "killed"
        while kills < options.kills:
            before = max(losses(run), default=0)
            process = start(data, run, *SETTINGS, size=())
            wait_for_steps(run, before + 1, process)
            time.sleep(chance.uniform(0, 1.5))
            if process.poll() is not None:
                break
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            whole = [
                checkpoint
                for checkpoint in names(run / "checkpoints")
                if not find_damage(run / "checkpoints" / checkpoint)
            ]
            saved = [event for event in RunFolder(run).events() if isinstance(event, CheckpointSaved)]
            lost += bool(saved) and f"step-{saved[-1].step:08d}" not in whole
        train(data, run, *SETTINGS, size=())
        events = RunFolder(run).events()
        same = losses(run) == losses(folder / "peace")
        final = losses(run)[240], losses(folder / "peace")[240]
    resumed = [event.resumed_step for event in events if isinstance(event, RunStarted)]
    rejected = sum(isinstance(event, CheckpointRejected) for event in events)
    print("| figure | measured | target |\n|---|---|---|")
    print(f"| kills of all workers | {kills} | {options.kills} |")
    print(f"| steps resumed from | {', '.join(map(str, resumed))} | |")
    print(f"| all 240 losses bit for bit those of the run left in peace | {'yes' if same else 'no'} | yes |")
    print(f"| final loss, killed and in peace | {final[0]!r}, {final[1]!r} | equal |")
    print(f"| checkpoints lost, found damaged | {lost}, {rejected} | 0, 0 |")
    print(json.dumps({"benchmark": "interruptions", "kills": kills, "same": same, "lost": lost, "rejected": rejected}))


if __name__ == "__main__":
    main()

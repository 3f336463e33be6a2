"""Several runs, one after the other, by the same workers: most of a short run is the start of its processes.

torchrun --standalone --nproc-per-node 2 -m tests.several_runs DATA FOLDER '{"NAME": ["key=value"]}'
"""

import json
import os
import sys
from pathlib import Path

from dragoman.decoding.validation_scorer import make_scorer
from dragoman.launch import local_launcher
from dragoman.recipe import resolve
from dragoman.training.worker import TrainingJob


def main() -> None:
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for number, (name, overrides) in enumerate(json.loads(sys.argv[3]).items()):
        # Addresses of the run before are still in the store: workers look only at those of the present attempt.
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)
        settings = resolve("tiny", overrides).settings
        local_launcher.train(TrainingJob(settings, data, folder / name, threads=1), 2, make_scorer)


if __name__ == "__main__":
    main()

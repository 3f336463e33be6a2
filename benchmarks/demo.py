"""The demo with several seeds: time, BLEU on its test set, and its example sentences.

python -m benchmarks.demo [--seeds 1 2 3]

The recipe was chosen by the validation set; the test set is only reported. Run it on an idle machine with two cores.
"""

import re
import subprocess
import sys
import tempfile
import time

from benchmarks.command_line import make_parser
from benchmarks.reporting import print_json, print_row
from dragoman.commands.demo import EXAMPLES


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    print_row("seed", "time", "BLEU", "examples right")
    print_row("---", "---", "---", "---")
    rows = []
    for seed in parser.parse_args().seeds:
        seconds, output = run_demo(seed)
        bleu = float(re.search(r"BLEU ([\d.]+)", output)[1])  # type: ignore[index]
        right = [reference in output for _, reference in EXAMPLES]
        print_row(seed, f"{seconds:.0f} s", f"{bleu:.1f}", f"{sum(right)} of {len(right)}")
        rows.append({"seed": seed, "seconds": seconds, "bleu": bleu, "examples_right": right})
    print_json("demo", rows=rows)


def run_demo(seed: int) -> tuple[float, str]:
    """Wall time and output of `dragoman demo`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dragoman", "demo", "--out", folder, "--seed", str(seed)]
        started_at = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return time.perf_counter() - started_at, done.stdout


if __name__ == "__main__":
    main()

"""Planning the batches of an epoch: time, memory, and how long other threads wait; and the time to open the data.

python -m benchmarks.batch_plan [--pairs 5000000]
"""

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.command_line import make_parser
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import GilMonitor
from dragoman.batching.batch_plan import plan_epoch
from dragoman.corpus.shards import Pairs, write_shard

SHARDS = 10


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    pairs = parser.parse_args().pairs
    lengths = np.random.default_rng(0).integers(2, 60, (pairs, 2)).astype(np.int32)
    print_figures("batch_plan", [*measure_plan(lengths), measure_open(lengths)])


def measure_plan(lengths: np.ndarray) -> list[Figure]:
    before_mb = peak_mb()
    started_at = time.perf_counter()
    with GilMonitor() as gil:
        plan = plan_epoch(lengths, 25_000, seed=1, epoch=0)
    plan_s, plan_mb = time.perf_counter() - started_at, peak_mb() - before_mb
    name = f"planning an epoch of {len(lengths):,} pairs ({len(plan):,} batches), one core"
    return [
        Figure(name, f"{plan_s:.2f} s", "under 3 s", plan_s),
        Figure(
            "longest time that planning blocks the heartbeat", f"{gil.longest_s:.2f} s", "under 0.2 s", gil.longest_s
        ),
        Figure("peak memory of planning, without the lengths", f"{plan_mb:.0f} MB", "under 300 MB", plan_mb),
    ]


def measure_open(lengths: np.ndarray) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        for shard, part in enumerate(np.array_split(lengths, SHARDS)):
            write_shard(Path(folder), shard, [np.zeros(int(part.sum()), np.uint16)], part)
        started_at = time.perf_counter()
        opened = Pairs.open(Path(folder), np.dtype(np.uint16))
        open_ms = 1000 * (time.perf_counter() - started_at)
        assert len(opened) == len(lengths)
    return Figure(f"opening a data set of {len(lengths):,} pairs", f"{open_ms:.1f} ms", "under 50 ms", open_ms)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()

"""How long it takes to plan an epoch, and how much memory; and how fast a data set of that size opens.

python -m benchmarks.plan [--pairs 5000000]
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from dragoman.batching.plan import plan_epoch
from dragoman.corpus.shards import Pairs, write_shard


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    pairs = parser.parse_args().pairs
    lengths = np.random.default_rng(0).integers(2, 60, (pairs, 2)).astype(np.int32)
    before_mb = peak_mb()
    started = time.perf_counter()
    plan = plan_epoch(lengths, 25_000, seed=1, epoch=0)
    plan_s, plan_mb = time.perf_counter() - started, peak_mb() - before_mb
    with tempfile.TemporaryDirectory() as folder:
        for shard, part in enumerate(np.array_split(lengths, 10)):
            write_shard(Path(folder), shard, [np.zeros(int(part.sum()), np.uint16)], part)
        started = time.perf_counter()
        opened = Pairs(Path(folder), np.dtype(np.uint16))
        open_ms = 1000 * (time.perf_counter() - started)
        assert len(opened) == pairs
    print("| figure | measured | target |\n|---|---|---|")
    print(f"| planning an epoch of {pairs:,} pairs ({len(plan):,} batches), one core | {plan_s:.2f} s | under 3 s |")
    print(f"| memory for it, besides the lengths | {plan_mb:.0f} MB | under 300 MB |")
    print(f"| opening {pairs:,} pairs | {open_ms:.1f} ms | under 50 ms |")
    print(json.dumps({"benchmark": "plan", "plan_s": plan_s, "plan_mb": plan_mb, "open_ms": open_ms}))


if __name__ == "__main__":
    main()

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.gpu_processes import split_processes

PROGRAM = """
from dragoman.telemetry.gpu_processes import is_own
print([is_own(int(pid)) for pid in input().split()])
"""


def test_workers_that_share_a_gpu_are_not_others():
    siblings = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for workers, expected in (("2", "[True, True]"), ("1", "[False, False]")):
            found = subprocess.run(
                [sys.executable, "-c", PROGRAM], input=" ".join(str(sibling.pid) for sibling in siblings), text=True,
                capture_output=True, check=True, env={**os.environ, "LOCAL_WORLD_SIZE": workers},
            )  # fmt: skip
            assert found.stdout.strip() == expected
    finally:
        for sibling in siblings:
            sibling.communicate(b"")


@given(st.dictionaries(st.integers(1, 9), st.integers(0, 100)), st.dictionaries(st.integers(1, 9), st.floats(0, 1)),
       st.sets(st.integers(1, 9)), st.integers(1, 3))  # fmt: skip
def test_processes_are_either_this_runs_or_others(memory, use, own, workers):
    ours, others = split_processes(memory, use, own.__contains__, workers)
    listed = memory.keys() | use.keys()
    if listed & own:
        assert (ours, others) == (listed & own, listed - own)
    else:  # Their numbers are hidden.
        assert (ours, len(others)) == (set(), max(0, len(listed) - workers))

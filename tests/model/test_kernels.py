"""The Triton kernels without a GPU, in Triton's interpreter: see `interpreted_kernels`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..peer_environment import peer_python


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
def test_interpreted_kernels_are_right_and_stay_within_their_tensors() -> None:
    """In a process of its own: Triton chooses between its interpreter and its compiler when it is imported."""
    tests = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [peer_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr

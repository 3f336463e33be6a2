"""Tokens that fit into memory."""

import psutil
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.architecture import architecture_of
from dragoman.model.memory_budget import (
    CPU_MICRO_BATCH_TOKENS,
    MemoryUse,
    choose_micro_batch_tokens,
    peak_memory_bytes,
)
from dragoman.recipe import resolve

CPU = torch.device("cpu")


def test_the_setting_decides_and_otherwise_memory_and_caches_of_the_cpu() -> None:
    architecture = architecture_of("tiny")
    fixed = resolve("tiny", ["training.micro_batch_tokens=123"]).settings
    assert choose_micro_batch_tokens(fixed, architecture, CPU, workers_on_host=1) == 123
    automatic = resolve("tiny", []).settings
    assert choose_micro_batch_tokens(automatic, architecture, CPU, workers_on_host=1) == CPU_MICRO_BATCH_TOKENS
    many = choose_micro_batch_tokens(automatic, architecture, CPU, workers_on_host=10**9)
    assert many == 1, "many workers share the memory"


@given(fixed=st.floats(0, 1e12), token=st.floats(1, 1e8), memory=st.floats(0, 1e12))
def test_the_largest_micro_batch_fits_and_one_token_more_does_not(fixed, token, memory) -> None:
    use = MemoryUse(fixed, token)
    most = use.most_tokens(memory)
    assert most >= 0
    assert most == 0 or use.peak_bytes(most) <= memory * (1 + 1e-9)
    assert use.peak_bytes(most + 1) >= memory * (1 - 1e-9)


def test_peak_memory_is_at_least_what_the_process_uses_now() -> None:
    block = torch.ones(30_000_000)
    used_bytes = psutil.Process().memory_info().rss
    assert peak_memory_bytes(CPU) > 0.9 * used_bytes > 0.9 * block.nbytes
    assert peak_memory_bytes(CPU) < psutil.virtual_memory().total

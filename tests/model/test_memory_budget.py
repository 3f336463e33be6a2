"""Tokens that fit into memory."""

import torch

from dragoman.model.architecture import architecture_of
from dragoman.model.memory_budget import CPU_MICRO_BATCH_TOKENS, choose_micro_batch_tokens
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

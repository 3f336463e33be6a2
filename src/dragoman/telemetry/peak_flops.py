"""How fast a device multiplies matrices: what the speed of training is compared with."""

import time

import torch

ROWS = {"cpu": 768, "cuda": 8192}
"""Large enough to keep the device busy, small enough for its memory and for our patience."""
LONG_S = 0.1
"""A measurement that takes so long is steady."""


def measure_peak_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of the best of a few large products, as the run's workers see it, all at the same time."""
    rows = ROWS[device.type]
    matrix = torch.randn(rows, rows, device=device).to(dtype)
    best_s, spent_s = float("inf"), 0.0
    while spent_s < LONG_S:
        started = time.perf_counter()
        matrix @ matrix
        if device.type == "cuda":
            torch.cuda.synchronize()
        product_s = time.perf_counter() - started
        best_s, spent_s = min(best_s, product_s), spent_s + product_s
    return 2 * rows**3 / best_s

"""Peak FLOP/s of a device, measured with large matrix products. MFU is computed against it."""

import time

import torch

MATRIX_ROWS = {"cpu": 768, "cuda": 8192}
"""Large enough to keep the device busy, small enough for its memory and a quick start."""
MEASUREMENT_S = 0.1
"""Products are repeated until they took this long together; the best one counts."""


def measure_peak_flops(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of the fastest of a few large products, while the other workers of the machine measure theirs."""
    rows = MATRIX_ROWS[device.type]
    matrix = torch.randn(rows, rows, device=device).to(dtype)
    best_s, spent_s = float("inf"), 0.0
    while spent_s < MEASUREMENT_S:
        started_at = time.perf_counter()
        matrix @ matrix
        if device.type == "cuda":
            torch.cuda.synchronize()
        product_s = time.perf_counter() - started_at
        best_s, spent_s = min(best_s, product_s), spent_s + product_s
    return 2 * rows**3 / best_s

"""Peak FLOP/s of a device, measured with large matrix products. MFU is computed against it."""

import time
from collections.abc import Callable

import torch

from dragoman.events import PeakMeasured

MATRIX_ROWS = {"cpu": 768, "cuda": 8192}
"""Large enough to keep the device busy, small enough for its memory and a quick start."""
WARM_UP_S = {"cpu": 0.0, "cuda": 0.4}
"""Products for this long are not measured: a GPU raises its clocks meanwhile."""
ROUND_S = 0.02
"""Time of the products that are measured together."""
MAX_ROUNDS = 20
AGREEING_ROUNDS = 3
AGREEMENT = 0.03
"""The measurement ends when its best rounds differ by less than this part."""


def measure_peak(dtype: torch.dtype, device: torch.device) -> PeakMeasured:
    """Measure large products, while the other workers of the machine measure theirs."""
    rows = MATRIX_ROWS[device.type]
    matrix = torch.randn(rows, rows, device=device).to(dtype)
    product = torch.empty_like(matrix)

    def time_products(count: int) -> float:
        timer = _time_on_gpu if device.type == "cuda" else _time_on_cpu
        return timer(lambda: torch.mm(matrix, matrix, out=product), count)

    product_s, spread = find_shortest_time(time_products, WARM_UP_S[device.type])
    is_gpu = device.type == "cuda"
    return PeakMeasured(
        flops_per_s=2 * rows**3 / product_s,
        spread=spread,
        device=torch.cuda.get_device_name(device) if is_gpu else "CPU",
        precision=_name_precision(dtype, is_gpu),
    )


def find_shortest_time(time_products: Callable[[int], float], warm_up_s: float) -> tuple[float, float]:
    """Seconds of one product, in the fastest of several rounds; and the relative spread of the fastest rounds.

    `time_products` runs so many products and returns their seconds.
    """
    time_products(1)  # Loads the library, for longer than a hundred products take, while the clocks are low.
    spent_s = product_s = time_products(1)
    while spent_s < warm_up_s:
        product_s = time_products(1)
        spent_s += product_s
    count = max(1, round(ROUND_S / product_s))
    times_s: list[float] = []
    spread = 1.0
    while len(times_s) < AGREEING_ROUNDS or (spread > AGREEMENT and len(times_s) < MAX_ROUNDS):
        times_s = sorted([*times_s, time_products(count) / count])
        spread = times_s[:AGREEING_ROUNDS][-1] / times_s[0] - 1
    return times_s[0], spread


def _time_on_cpu(product: Callable[[], object], count: int) -> float:
    started_at = time.perf_counter()
    for _ in range(count):
        product()
    return time.perf_counter() - started_at


def _time_on_gpu(product: Callable[[], object], count: int) -> float:
    """The GPU's own time, without that of Python and of waking up to see the end."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(count):
        product()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _name_precision(dtype: torch.dtype, is_gpu: bool) -> str:
    if dtype == torch.float32 and is_gpu and torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]

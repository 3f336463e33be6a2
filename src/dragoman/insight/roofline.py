"""Roofline of a step on a GPU: the least time that its arithmetic and its memory traffic can take.

The arithmetic is counted; the traffic is an estimate, from the bytes that the kernels of the model and of the optimizer
must read and write. The bandwidth is that of the data sheet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dragoman.events import StepDone
from dragoman.insight.flop_utilisation import find_peak, mean_step_flops
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import mean_of
from dragoman.telemetry.data_sheet_peaks import find_data_sheet_bandwidth

PASS_BYTES = 20
"""For each parameter and micro-batch: cast from float32 to bf16, read forward and backward, gradient written in bf16
and cast to float32."""
UPDATE_BYTES = 40
"""For each parameter and step: AdamW reads 16 and writes 12 bytes, the gradient norm and clipping move 12."""
ACTIVATION_BYTES = 200
"""For each token, layer and feature of the residual stream: 105 kB a token and layer were measured at 512 features,
outside of matrix products and attention."""
ORTHOGONALISATION_FLOPS = 30
"""For each parameter and feature: five Newton-Schulz iterations of Muon, three products each ..."""
ORTHOGONALISATION_PART = 0.2
"""... at this part of the peak, because the matrices are small."""


@dataclass(frozen=True)
class Roofline:
    """Least times of the parts of one worker's step."""

    arithmetic_s: float
    """Forward and backward, at the peak of large matrix products."""
    weights_s: float
    """Reading and writing weights, gradients and optimizer state: it does not depend on the batch size."""
    activations_s: float
    """Reading and writing activations."""
    update_s: float
    """The optimizer update alone; its traffic is part of `weights_s`."""

    @property
    def memory_s(self) -> float:
        return self.weights_s + self.activations_s


def estimate_roofline(history: RunHistory, steps: Sequence[StepDone]) -> Roofline | None:
    """The roofline of a mean step of the worker with the most steps; None if the device's peaks are not known."""
    bandwidth = find_data_sheet_bandwidth(history.started.device)
    step_flops, step_s = mean_step_flops(history, steps), mean_of(steps, "step_s")
    if bandwidth is None or not step_flops or not history.peaks:
        return None
    total_peak, _ = find_peak(history, step_flops / step_s)
    if total_peak is None:
        return None
    peak = total_peak / history.started.world_size
    share, micro_batches = mean_of(steps, "share"), mean_of(steps, "micro_batches")
    parameters, features = history.started.parameters, history.setting("model", "d_model") or 0
    layers = fmean(history.setting("model", f"{stack}_layers") or 0 for stack in ("encoder", "decoder"))
    tokens = share * (mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens"))
    update_s = parameters * UPDATE_BYTES / bandwidth
    if history.setting("optimizer", "algorithm") == "muon":
        update_s += parameters * features * ORTHOGONALISATION_FLOPS / (ORTHOGONALISATION_PART * peak)
    return Roofline(
        arithmetic_s=share * step_flops / peak,
        weights_s=parameters * (PASS_BYTES * micro_batches + UPDATE_BYTES) / bandwidth,
        activations_s=tokens * layers * features * ACTIVATION_BYTES / bandwidth,
        update_s=update_s,
    )

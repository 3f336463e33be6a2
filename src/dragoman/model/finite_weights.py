"""Weights with NaN or infinity, as a diverged run or a damaged file has them."""

import math
from collections.abc import Mapping

from torch import Tensor


def find_not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of the weights that are not finite in float32."""
    return [name for name, tensor in weights.items() if not _is_finite(tensor)]


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.numel():
        return True
    low, high = tensor.float().aminmax()  # Both are NaN if one number is: no mask of the size of the tensor.
    return math.isfinite(low) and math.isfinite(high)

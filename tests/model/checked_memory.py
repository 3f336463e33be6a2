"""Triton's interpreter, made to refuse loads and stores outside of the tensors that a kernel was given.

A GPU seldom notices them: it reads what happens to lie there, or ends the whole process at some later time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter


class OutOfBoundsError(Exception):
    """A kernel has used memory that it was not given."""


class _Spans:
    """The bytes from the first to the last element of each tensor."""

    def __init__(self) -> None:
        self._begins = self._ends = np.zeros(0, dtype=np.int64)

    def set(self, tensors: list[Tensor]) -> None:
        spans = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + _extent(tensor) * tensor.element_size())
            for tensor in tensors
            if tensor.numel()
        )
        self._begins, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        self._ends = np.maximum.accumulate(ends)  # The tensors that a fused one is split into overlap.

    def check(self, addresses: Any, mask: Any, size: int, what: str) -> None:
        used = np.broadcast_to(addresses, np.broadcast_shapes(addresses.shape, mask.shape))[mask].astype(np.int64)
        before = np.searchsorted(self._begins, used, side="right") - 1
        outside = (before < 0) | (used + size > self._ends[before])
        if outside.any():
            raise OutOfBoundsError(f"{what} {outside.sum()} of {used.size} elements outside of the kernel's tensors")


def _extent(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


@contextmanager
def checked_memory() -> Iterator[None]:
    """Check all kernels that run inside, and fill new tensors with NaN, so that values that none wrote are seen."""
    spans, builder = _Spans(), type(interpreter.interpreter_builder)
    take, load, store = interpreter.GridExecutor._init_args_hst, builder.create_masked_load, builder.create_masked_store

    def take_arguments(self: Any, args: Any, kwargs: Any) -> Any:
        taken = take(self, args, kwargs)
        spans.set([each for each in (*taken[0], *taken[1].values()) if isinstance(each, Tensor)])
        return taken

    def checked_load(self: Any, pointers: Any, mask: Any, *options: Any) -> Any:
        spans.check(pointers.data, mask.data, pointers.get_element_ty().primitive_bitwidth // 8, "loads")
        return load(self, pointers, mask, *options)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        spans.check(pointers.data, mask.data, value.data.itemsize, "stores")
        return store(self, pointers, value, mask, *options)

    is_deterministic = torch.are_deterministic_algorithms_enabled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "_init_args_hst", take_arguments)
        patch.setattr(builder, "create_masked_load", checked_load)
        patch.setattr(builder, "create_masked_store", checked_store)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(is_deterministic)

"""The choice of bf16 or float32."""

import pytest
import torch

from dragoman.model import precision as precision_module
from dragoman.model.precision import Precision
from dragoman.recipe import resolve

CPU = torch.device("cpu")


@pytest.mark.parametrize("fast_bf16", [True, False])
def test_training_uses_the_setting_or_what_the_hardware_is_fastest_at(
    fast_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_module, "has_fast_bf16", lambda _: fast_bf16)
    names = {
        choice: Precision.choose(resolve("tiny", [f"training.precision={choice}"]).settings, CPU).name
        for choice in ("auto", "bf16", "fp32")
    }
    assert names == {"auto": "bf16" if fast_bf16 else "fp32", "bf16": "bf16", "fp32": "fp32"}


def test_decoding_on_a_cpu_uses_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_module, "has_fast_bf16", lambda _: True)
    assert Precision.for_decoding(CPU).name == "fp32"
    assert Precision.for_decoding(torch.device("cuda")).name == "bf16"

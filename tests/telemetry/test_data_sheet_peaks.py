import re

import pytest

from dragoman.telemetry.data_sheet_peaks import (
    DATA_SHEET_GIGABYTES_PER_S,
    DATA_SHEET_TFLOPS,
    find_data_sheet_bandwidth,
    find_data_sheet_peak,
)

NAMES = [
    "NVIDIA GB200", "NVIDIA B200", "NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H800", "NVIDIA H20", "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "A100-SXM4-40GB",
    "NVIDIA A800-SXM4-80GB", "NVIDIA A30", "NVIDIA A40", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A2", "NVIDIA L4",
    "NVIDIA L40", "NVIDIA L40S", "NVIDIA RTX A6000", "NVIDIA RTX A5000", "NVIDIA RTX A4000",
    "NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 3080", "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5080",
    "NVIDIA GeForce RTX 5090", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB",
    "Tesla V100S-PCIE-32GB", "Tesla P100-SXM2-16GB", "Tesla P100-PCIE-16GB", "Tesla T4",
]  # fmt: skip
"""As `torch.cuda.get_device_name` returns them."""
OTHERS = [
    "CPU", "", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 4080 SUPER",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100X", "NVIDIA L4 virtual",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_one_entry_and_each_entry_a_name(name):
    short = re.sub("NVIDIA |GeForce |Tesla ", "", name)
    assert sum(re.fullmatch(pattern, short) is not None for pattern in DATA_SHEET_TFLOPS) == 1
    assert sum(re.fullmatch(pattern, short) is not None for pattern in DATA_SHEET_GIGABYTES_PER_S) == 1
    assert find_data_sheet_peak(name, "fp32") > 1e12


def test_every_entry_is_reached_by_a_name():
    found = {find_data_sheet_peak(name, "fp32") for name in NAMES}
    assert found == {peaks["fp32"] * 1e12 for peaks in DATA_SHEET_TFLOPS.values()}


@pytest.mark.parametrize("name", OTHERS)
def test_slower_relatives_are_not_taken_for_a_known_device(name):
    assert find_data_sheet_peak(name, "fp32") is None
    assert find_data_sheet_bandwidth(name) is None


@pytest.mark.parametrize("name", NAMES)
def test_at_the_bandwidth_of_every_device_a_product_needs_tens_of_operations_a_byte(name):
    intensity = find_data_sheet_peak(name, "fp16") / find_data_sheet_bandwidth(name)
    assert 20 < intensity < 600, "another order of magnitude would be a wrong unit"


@pytest.mark.parametrize("peaks", DATA_SHEET_TFLOPS.values(), ids=DATA_SHEET_TFLOPS)
def test_lower_precision_is_at_least_as_fast(peaks):
    assert peaks["fp16"] >= 1.7 * peaks["fp32"], "half precision is about twice as fast, or more"
    if "bf16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
        assert peaks["bf16"] / peaks["tf32"] == pytest.approx(2, rel=0.02)
        assert peaks["tf32"] >= peaks["fp32"]


def test_devices_without_bf16_have_no_peak_for_it():
    assert find_data_sheet_peak("Tesla V100-SXM2-16GB", "bf16") is None
    assert find_data_sheet_peak("NVIDIA H200", "bf16") == 989.4e12

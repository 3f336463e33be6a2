"""Peak FLOP/s and memory bandwidth of GPUs by name, from NVIDIA's data sheets and architecture white papers.

Measurements are checked against the FLOP/s: dense products, without structured sparsity, at the rated boost clock; half
precision accumulates in float32. The bandwidth is that of the GPU's own memory, and is not measured.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")
GIGA, TERA = 1e9, 1e12


def _tensor_cores(half: float, tf32: float, fp32: float) -> dict[str, float]:
    """TFLOP/s by precision of GPUs from Ampere on, which multiply bf16 as fast as fp16."""
    return {"bf16": half, "fp16": half, "tf32": tf32, "fp32": fp32}


def _without_bf16(fp16: float, fp32: float) -> dict[str, float]:
    """TFLOP/s by precision of older GPUs, which have neither bf16 nor TF32."""
    return {"fp16": fp16, "fp32": fp32}


DATA_SHEET_TFLOPS: dict[str, dict[str, float]] = {
    r"GB200": _tensor_cores(2500, 1250, 80),
    r"B200": _tensor_cores(2250, 1125, 75),
    r"H200|GH200 (480GB|144G HBM3e)|H100 80GB HBM3|H800": _tensor_cores(989.4, 494.7, 66.9),
    r"H100 NVL|H200 NVL": _tensor_cores(835.5, 417.5, 60),
    r"H100 PCIe": _tensor_cores(756, 378, 51.2),
    r"H20": _tensor_cores(148, 74, 44),
    r"A[18]00[- ](SXM4|PCIE|PG509|80GB)[- ]?(40GB|80GB|64GB|200|PCIe)?( LC)?": _tensor_cores(312, 156, 19.5),
    r"A30": _tensor_cores(165, 82, 10.3),
    r"A40": _tensor_cores(149.7, 74.8, 37.4),
    r"A10": _tensor_cores(125, 62.5, 31.2),
    r"A10G": _tensor_cores(70, 35, 31.5),
    r"A2": _tensor_cores(18, 9, 4.5),
    r"L4": _tensor_cores(121, 60, 30.3),
    r"L40": _tensor_cores(181, 90.5, 90.5),
    r"L40S": _tensor_cores(362, 183, 91.6),
    r"RTX A6000": _tensor_cores(154.8, 77.4, 38.7),
    r"RTX A5000": _tensor_cores(111.1, 55.6, 27.8),
    r"RTX A4000": _tensor_cores(76.7, 38.3, 19.2),
    r"RTX 6000 Ada Generation": _tensor_cores(364.2, 182.1, 91.1),
    r"RTX 3080": _tensor_cores(59.5, 29.8, 29.8),
    r"RTX 3090": _tensor_cores(71, 35.6, 35.6),
    r"RTX 3090 Ti": _tensor_cores(80, 40, 40),
    r"RTX 4080": _tensor_cores(97.5, 48.7, 48.7),
    r"RTX 4090": _tensor_cores(165.2, 82.6, 82.6),
    r"RTX 5080": _tensor_cores(112.6, 56.3, 56.3),
    r"RTX 5090": _tensor_cores(209.5, 104.8, 104.8),
    r"V100-SXM[23]-(16|32)GB(-LS)?": _without_bf16(125, 15.7),
    r"V100-(PCIE|FHHL)-(16|32)GB": _without_bf16(112, 14),
    r"V100S-PCIE-32GB": _without_bf16(130, 16.4),
    r"P100-SXM2-16GB": _without_bf16(21.2, 10.6),
    r"P100-PCIE-(12|16)GB": _without_bf16(18.7, 9.3),
    r"T4": _without_bf16(65, 8.1),
}  # fmt: skip
"""TFLOP/s by precision and by the whole name of the device, without its brand."""
DATA_SHEET_GIGABYTES_PER_S: dict[str, float] = {
    r"GB200|B200": 8000,
    r"H200( NVL)?|GH200 144G HBM3e": 4800,
    r"GH200 480GB|H20": 4000,
    r"H100 NVL": 3900,
    r"H100 80GB HBM3|H800": 3350,
    r"H100 PCIe": 2000,
    r"A[18]00-SXM4-80GB( LC)?": 2039,
    r"A[18]00 80GB PCIe( LC)?": 1935,
    r"A100-(SXM4|PCIE|PG509)-(40GB|64GB|200)( LC)?": 1555,
    r"A30": 933,
    r"A40": 696,
    r"A10G?": 600,
    r"A2": 200,
    r"L4": 300,
    r"L40S?": 864,
    r"RTX A[65]000": 768,
    r"RTX A4000": 448,
    r"RTX 6000 Ada Generation": 960,
    r"RTX 3080": 760,
    r"RTX 3090": 936,
    r"RTX 3090 Ti": 1008,
    r"RTX 4080": 717,
    r"RTX 4090": 1008,
    r"RTX 5080": 960,
    r"RTX 5090": 1792,
    r"V100-(SXM[23]|PCIE|FHHL)-(16|32)GB(-LS)?": 900,
    r"V100S-PCIE-32GB": 1134,
    r"P100-(SXM2|PCIE)-16GB": 732,
    r"P100-PCIE-12GB": 549,
    r"T4": 320,
}
"""GB/s by the whole name of the device, without its brand."""
_BRANDS = re.compile(r"^(NVIDIA )?(GeForce |Tesla )?")


def find_data_sheet_peak(device: str, precision: str) -> float | None:
    """FLOP/s of a device with a name as torch gives it; None where it is not in the table.

    The whole name must match: laptop GPUs and MIG partitions are slower than the device that their name begins with.
    """
    tflops = _find(DATA_SHEET_TFLOPS, device) or {}
    return tflops[precision] * TERA if precision in tflops else None


def find_data_sheet_bandwidth(device: str) -> float | None:
    """Bytes a second of the memory of a device with a name as torch gives it; None where it is not in the table."""
    gigabytes_per_s = _find(DATA_SHEET_GIGABYTES_PER_S, device)
    return None if gigabytes_per_s is None else gigabytes_per_s * GIGA


def _find(table: Mapping[str, T], device: str) -> T | None:
    name = _BRANDS.sub("", device)
    return next((entry for pattern, entry in table.items() if re.fullmatch(pattern, name)), None)

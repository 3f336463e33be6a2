import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.exchange.quantized_blocks import BLOCK, dequantize, message_bytes, quantize

sizes = st.integers(1, 3 * BLOCK)
seeds = st.integers(0, 2**32 - 1)
all_bits = pytest.mark.parametrize("bits", [8, 4, 2])


@given(seed=seeds, size=sizes, spread=st.integers(0, 12))
def test_the_error_of_8_bits_is_at_most_half_a_level_of_its_block(seed, size, spread):
    blocks = torch.arange(size) // BLOCK
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (spread * blocks - 12)
    restored = dequantize(quantize(values, 8), size, 8)
    for block in range(int(blocks.max()) + 1):
        scale = values[blocks == block].abs().max() / 128
        assert (restored - values)[blocks == block].abs().max() <= 0.501 * scale


@pytest.mark.parametrize(("bits", "expected"), [(8, 1e-4), (4, 0.0115), (2, 0.119)])
def test_normal_values_lose_as_little_as_equally_spaced_levels_allow(bits, expected):
    """Expected are the squared errors of the best spacing (Max 1960)."""
    values = torch.randn(200 * BLOCK, generator=torch.Generator().manual_seed(1))
    error = (dequantize(quantize(values, bits), len(values), bits) - values).square().mean()
    assert float(error) < 1.03 * expected


@all_bits
@given(size=sizes)
def test_a_message_has_the_bits_of_the_padded_values_and_four_bytes_per_block(bits, size):
    blocks = -(-size // BLOCK)
    message = quantize(torch.ones(size), bits)
    assert message.dtype == torch.uint8
    assert len(message) == message_bytes(size, bits) == blocks * (BLOCK * bits // 8 + 4)


@all_bits
def test_zeros_stay_zeros(bits):
    assert torch.equal(dequantize(quantize(torch.zeros(5), bits), 5, bits), torch.zeros(5))


@all_bits
@given(seed=seeds, rows=st.integers(1, 4), size=sizes)
def test_rows_are_quantized_one_by_one(bits, seed, rows, size):
    values = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    message = quantize(values, bits)
    assert torch.equal(message, torch.stack([quantize(row, bits) for row in values]))
    restored = dequantize(message, size, bits)
    assert torch.equal(restored, torch.stack([dequantize(row, size, bits) for row in message]))


@all_bits
@given(seed=seeds)
def test_values_that_are_not_finite_stay_so(bits, seed):
    """A worker that diverges must not look healthy to the others."""
    values = torch.randn(BLOCK, generator=torch.Generator().manual_seed(seed))
    values[seed % BLOCK] = torch.nan
    assert not dequantize(quantize(values, bits), BLOCK, bits).isfinite().all()

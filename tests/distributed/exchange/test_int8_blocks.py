import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.exchange.int8_blocks import BLOCK, dequantize, quantize

sizes = st.integers(1, 3 * BLOCK)


@given(seed=st.integers(0, 2**32 - 1), size=sizes, spread=st.integers(0, 12))
def test_the_error_of_a_value_is_at_most_half_the_scale_of_its_block(seed, size, spread):
    blocks = torch.arange(size) // BLOCK
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (spread * blocks - 12)
    restored = dequantize(quantize(values), size)
    for block in range(int(blocks.max()) + 1):
        scale = values[blocks == block].abs().max() / 127
        assert (restored - values)[blocks == block].abs().max() <= 0.501 * scale


@given(sizes)
def test_a_message_has_one_byte_per_padded_value_and_four_per_block(size):
    blocks = -(-size // BLOCK)
    packed = quantize(torch.ones(size))
    assert packed.dtype == torch.uint8
    assert len(packed) == blocks * (BLOCK + 4)


def test_zeros_stay_zeros():
    assert torch.equal(dequantize(quantize(torch.zeros(5)), 5), torch.zeros(5))

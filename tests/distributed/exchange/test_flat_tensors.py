import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dragoman.distributed.exchange.flat_tensors import flatten, gradient_of, split_evenly, unflatten_into

shapes = st.lists(st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=6)


@given(shapes)
def test_unflatten_is_the_reverse_of_flatten(shapes):
    tensors = [torch.randn(shape) for shape in shapes]
    restored = [torch.zeros(shape) for shape in shapes]
    unflatten_into(flatten(tensors), restored)
    assert all(torch.equal(actual, expected) for actual, expected in zip(restored, tensors, strict=True))


def test_a_flat_vector_shares_no_memory_with_its_tensors():
    tensor = torch.zeros(3)
    flatten([tensor]).fill_(1.0)
    assert torch.equal(tensor, torch.zeros(3))


@given(shapes, st.integers(1, 8))
def test_fragments_have_all_values_in_order_and_about_equal_sizes(shapes, count):
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    fragments = split_evenly(parameters, count)
    assert torch.equal(torch.cat([flatten(fragment) for fragment in fragments]), flatten(parameters))
    sizes = [sum(part.numel() for part in fragment) for fragment in fragments]
    assert max(sizes) - min(sizes) <= 1


def test_fragments_are_views_of_the_parameters():
    parameter = nn.Parameter(torch.zeros(2, 3))
    for number, fragment in enumerate(split_evenly([parameter], 2)):
        unflatten_into(torch.full((3,), float(number)), fragment)
    assert parameter.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_missing_gradient_becomes_zeros():
    parameter = nn.Parameter(torch.ones(2))
    assert gradient_of(parameter).tolist() == [0, 0]
    assert parameter.grad is gradient_of(parameter)

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.replica_drift import checksum, find_drift
from dragoman.events import ReplicasDrifted

from .thread_workers import ThreadWorkers

SIZES = (40, 7, 1)


def weights() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, generator=generator) for size in SIZES]


@given(st.sampled_from(range(3)), st.data(), st.integers(0, 31))
def test_the_checksum_changes_with_every_bit(tensor, data, bit):
    changed = weights()
    place = data.draw(st.integers(0, SIZES[tensor] - 1))
    changed[tensor].view(torch.int32)[place] ^= -(2**31) if bit == 31 else 2**bit
    assert checksum(changed) != checksum(weights())


def test_the_checksum_changes_if_two_tensors_are_exchanged():
    first, second = torch.ones(4), torch.zeros(4)
    assert checksum([first, second]) != checksum([second, first])


def test_values_that_are_not_finite_have_a_checksum_too():
    first, second = (torch.tensor([float("nan"), value]) for value in (1.0, 2.0))
    assert checksum([first]) == checksum([first.clone()])
    assert checksum([first]) != checksum([second])


@pytest.mark.parametrize(
    ("hosts", "changed", "expected"),
    [
        ("ab", [], None),
        ("abc", [1], (7, ["worker 1 on b"], True)),
        ("abcd", [0, 3], (7, ["worker 0 on a", "worker 1 on b", "worker 2 on c", "worker 3 on d"], False)),
        ("ab", [1], (7, ["worker 0 on a", "worker 1 on b"], False)),
    ],
)
def test_the_workers_in_the_minority_are_named(hosts, changed, expected):
    def work(cluster: Cluster) -> ReplicasDrifted | None:
        tensors = weights()
        if cluster.rank in changed:
            tensors[0][3] += 1e-6
        return find_drift(cluster, tensors, step=7)

    with ThreadWorkers(*hosts) as workers:
        for drift in workers(work):
            assert (drift and (drift.step, drift.workers, drift.has_majority)) == expected

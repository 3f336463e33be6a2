"""Gradients cross between workers, each of them a thread with a real group."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.int8_blocks import BLOCK
from dragoman.distributed.exchange.interface import Exchange
from dragoman.distributed.exchange.local_steps import LocalSteps, step_length_ratio
from dragoman.distributed.exchange.powersgd import PowerSgd
from dragoman.distributed.exchange.synchronous import SynchronousExchange, all_reduce_bf16, all_reduce_plain
from dragoman.distributed.step_stats import StepStats, packed_size

from .thread_workers import ThreadWorkers

SHAPES = ((24, 18), (5,), (2, 7))
"""Only the first is large enough to be worth two thin matrices of two columns each."""
TOKENS_OF_BATCH = 1000
Make = Callable[[Cluster, Sequence[nn.Parameter]], Exchange]

few = settings(max_examples=12)
world_sizes = st.sampled_from([2, 3])
seeds = st.integers(0, 2**32 - 1)


def local(
    every: int = 1, wire: str = "bf16", rate: float = 0.7, momentum: float = 0.9, streaming: bool = False
) -> Make:
    return lambda cluster, parameters: LocalSteps(cluster, parameters, every, wire, rate, momentum, streaming=streaming)


METHODS: dict[str, Make] = {
    "plain": lambda cluster, parameters: SynchronousExchange(cluster, parameters, all_reduce_plain),
    "bf16": lambda cluster, parameters: SynchronousExchange(cluster, parameters, all_reduce_bf16),
    "powersgd": lambda cluster, parameters: SynchronousExchange(cluster, parameters, PowerSgd(2)),
    "local, bf16": local(),
    "local, int8": local(wire="int8"),
}


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[int, ThreadWorkers]]:
    """Worlds of two and of three workers."""
    with ThreadWorkers("a", "b") as two, ThreadWorkers("a", "b", "c") as three:
        yield {2: two, 3: three}


class Worker:
    """One worker's parameters and its exchange. All workers begin with the same weights."""

    def __init__(self, cluster: Cluster, make: Make, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
        begin = torch.Generator().manual_seed(1)
        self.parameters = [nn.Parameter(torch.randn(*shape, generator=begin)) for shape in shapes]
        self.exchange = make(cluster, self.parameters)
        self.rank, self.world_size = cluster.rank, cluster.world_size

    @property
    def weights(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])

    def stats(self, tokens: float = 100.0) -> StepStats:
        times = [0.0] * self.world_size
        return StepStats(torch.tensor([7.0, 5.0]), tokens, times, times)

    def exchanged(self, gradients: Sequence[Tensor | None], stats: StepStats | None = None) -> list[Tensor]:
        """What becomes of this worker's gradients."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        self.exchange.all_reduce(self.stats() if stats is None else stats, TOKENS_OF_BATCH)
        return [parameter.grad.clone() for parameter in self.parameters if parameter.grad is not None]

    def move(self, by: Tensor) -> None:
        """Move all weights, as an optimizer would."""
        parts = torch.split(by, [parameter.numel() for parameter in self.parameters])
        with torch.no_grad():
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.add_(part.view_as(parameter))

    def take_steps(self, moves: Sequence[Tensor], *, flush_last: bool = True) -> None:
        """Steps of the local method whose updates are given."""
        for step, by in enumerate(moves, start=1):
            self.exchanged([None] * len(self.parameters))
            self.move(by)
            self.exchange.synchronize(flush=flush_last and step == len(moves))


def random_gradients(seed: int, rank: int, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed + rank)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def random_moves(seed: int, rank: int, steps: int) -> list[Tensor]:
    return [
        0.01 * torch.cat([gradient.flatten() for gradient in random_gradients(seed + 100 * step, rank)])
        for step in range(steps)
    ]


def total(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The sum over workers in double precision."""
    return [torch.stack(each).double().sum(0) for each in zip(*parts, strict=True)]


@few
@given(world_sizes, seeds)
def test_plain_sums_are_those_of_one_worker_to_rounding(worlds, world, seed):
    mine = [random_gradients(seed, rank) for rank in range(world)]
    sums = worlds[world](lambda cluster: Worker(cluster, METHODS["plain"]).exchanged(mine[cluster.rank]))
    for worker in sums:
        for got, wanted in zip(worker, total(mine), strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)


@few
@given(world_sizes, seeds, st.sampled_from(["plain", "bf16", "powersgd"]))
def test_all_workers_make_the_same_update_to_the_bit(worlds, world, seed, name):
    sums = worlds[world](lambda cluster: Worker(cluster, METHODS[name]).exchanged(random_gradients(seed, cluster.rank)))
    for worker in sums[1:]:
        assert all(torch.equal(one, other) for one, other in zip(worker, sums[0], strict=True))


@pytest.mark.parametrize("name", METHODS)
@few
@given(data=st.data(), world=world_sizes)
def test_stats_keep_their_exact_values_whatever_becomes_of_gradients(worlds, name, data, world):
    size = packed_size(world)
    counts = st.lists(st.integers(0, 2**21), min_size=size, max_size=size)
    values = [data.draw(counts) for _ in range(world)]

    def work(cluster: Cluster) -> StepStats | None:
        worker = Worker(cluster, METHODS[name])
        packed = torch.tensor(values[cluster.rank], dtype=torch.float32)
        worker.exchanged(random_gradients(3, cluster.rank), StepStats.unpack(packed))
        return worker.exchange.synchronize(flush=True)

    for summed in worlds[world](work):
        assert summed is not None
        assert summed.pack().tolist() == [sum(column) for column in zip(*values, strict=True)]


@few
@given(world_sizes, seeds)
def test_bf16_is_wrong_by_no_more_than_its_roundings(worlds, world, seed):
    mine = [random_gradients(seed, rank) for rank in range(world)]
    sums = worlds[world](lambda cluster: Worker(cluster, METHODS["bf16"]).exchanged(mine[cluster.rank]))
    rounding = torch.finfo(torch.bfloat16).eps / 2
    sizes = total([[gradient.abs() for gradient in gradients] for gradients in mine])
    for got, wanted, size in zip(sums[0], total(mine), sizes, strict=True):
        assert torch.all((got - wanted).abs() <= 1.01 * world * rounding * size)
        assert not torch.equal(got.double(), wanted)


@few
@given(world_sizes, seeds)
def test_powersgd_is_exact_where_the_gradient_has_no_more_rank_than_it_sends(worlds, world, seed):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(24, 2, generator=generator)
    mine = [
        [left @ torch.randn(2, 18, generator=generator), *random_gradients(seed, rank)[1:]] for rank in range(world)
    ]
    sums = worlds[world](lambda cluster: Worker(cluster, METHODS["powersgd"]).exchanged(mine[cluster.rank]))
    for got, wanted in zip(sums[0], total(mine), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3)


@few
@given(world_sizes, seeds)
def test_what_powersgd_misses_comes_with_later_steps(worlds, world, seed):
    """One gradient, and then none: what arrives in all those steps together is all that was wanted."""
    mine = [random_gradients(seed, rank, [(24, 18)]) for rank in range(world)]

    def work(cluster: Cluster) -> list[Tensor]:
        worker = Worker(cluster, METHODS["powersgd"], [(24, 18)])
        return [worker.exchanged(mine[cluster.rank] if step == 0 else [None])[0] for step in range(30)]

    arrived = worlds[world](work)[0]
    wanted = total(mine)[0]
    missed_after = [
        float((wanted - torch.stack(arrived[: step + 1]).sum(0)).norm() / wanted.norm()) for step in (0, 29)
    ]
    assert missed_after[0] > 0.3
    assert missed_after[1] < 1e-2


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("wire", ["bf16", "int8"])
@few
@given(world=world_sizes, seed=seeds, every=st.integers(1, 3), steps=st.integers(1, 5))
def test_without_outer_momentum_workers_meet_at_the_mean_of_their_weights(
    worlds, wire, streaming, world, seed, every, steps
):
    """In blocks of 8 bits, what a worker moved is wrong by half the scale at most; in bf16 by a rounding for each."""
    moves = [random_moves(seed, rank, steps) for rank in range(world)]

    def work(cluster: Cluster) -> Worker:
        worker = Worker(cluster, local(every, wire, rate=1.0, momentum=0.0, streaming=streaming))
        worker.take_steps(moves[cluster.rank])
        return worker

    workers = worlds[world](work)
    begin = Worker(Cluster(0, 1, 1, torch.device("cpu")), METHODS["plain"]).weights
    mean = torch.stack([torch.stack(each).sum(0) for each in moves]).double().mean(0)
    assert begin.numel() < BLOCK
    largest = max(float(torch.stack(each).abs().sum(0).max()) for each in moves)
    wrong = 1.05 * largest * (0.5 / 127 if wire == "int8" else torch.finfo(torch.bfloat16).eps) * steps + 1e-6
    torch.testing.assert_close(workers[0].weights.double(), begin.double() + mean, rtol=0, atol=wrong)


@few
@given(seed=seeds, size=st.integers(1, 3 * BLOCK), spread=st.integers(0, 12))
def test_8_bits_are_wrong_by_half_the_scale_of_their_own_block(worlds, seed, size, spread):
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.arange(size) // BLOCK
    moves = [torch.randn(size, generator=generator) * 10.0 ** (spread * blocks - 12) for _ in range(2)]

    def work(cluster: Cluster) -> Tensor:
        worker = Worker(cluster, local(wire="int8", rate=1.0, momentum=0.0), [(size,)])
        worker.move(-worker.weights)  # From nought, so that nothing is lost in the sum with the weights.
        worker.exchange.load_state_dict({})
        worker.take_steps([moves[cluster.rank]])
        return worker.weights

    for got in worlds[2](work):
        error = (got - torch.stack(moves).mean(0)).abs()
        for block in range(int(blocks.max()) + 1):
            scales = [float(each[blocks == block].abs().max()) / 127 for each in moves]
            assert float(error[blocks == block].max()) <= 1.001 * sum(scales) / 2 / 2


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("wire", ["bf16", "int8"])
@few
@given(world=world_sizes, seed=seeds, every=st.integers(1, 4), steps=st.integers(1, 9))
def test_after_a_flush_all_workers_have_the_same_weights_to_the_bit(worlds, wire, streaming, world, seed, every, steps):
    def work(cluster: Cluster) -> Worker:
        worker = Worker(cluster, local(every, wire, streaming=streaming))
        worker.take_steps(random_moves(seed, cluster.rank, steps))
        return worker

    workers = worlds[world](work)
    assert all(worker.exchange.in_sync for worker in workers)
    assert all(torch.equal(worker.weights, workers[0].weights) for worker in workers)


def test_between_meetings_workers_have_weights_of_their_own(worlds):
    def work(cluster: Cluster) -> Worker:
        worker = Worker(cluster, local(every=3))
        worker.take_steps(random_moves(1, cluster.rank, 2), flush_last=False)
        return worker

    one, other = worlds[2](work)
    assert not one.exchange.in_sync
    assert not torch.equal(one.weights, other.weights)


@given(likeness=st.floats(0, 1), world=st.integers(2, 64), steps=st.integers(1, 200))
def test_a_step_is_lengthened_by_no_more_than_pure_noise_would_have_it(likeness, world, steps):
    assert 1 <= step_length_ratio(likeness, world, steps) <= world**0.5
    assert step_length_ratio(1.0, world, steps) == 1
    assert step_length_ratio(1 / world, world, steps) == pytest.approx(world**0.5, rel=0.1)


@pytest.mark.parametrize(("alike", "factor"), [(True, 1.0), (False, 2**0.5)])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("wire", ["bf16", "int8"])
def test_workers_who_move_apart_take_longer_steps(worlds, wire, streaming, alike, factor):
    def work(cluster: Cluster) -> tuple[float, float]:
        worker = Worker(cluster, local(2, wire, rate=1.0, momentum=0.0, streaming=streaming))
        worker.take_steps(random_moves(1, 0 if alike else cluster.rank, 60))
        restored = Worker(cluster, local(2, wire))
        restored.exchange.load_state_dict(worker.exchange.state_dict())
        return worker.exchange.learning_rate_factor, restored.exchange.learning_rate_factor

    factors = worlds[2](work)
    assert factors[0] == factors[1]
    assert factors[0][0] == pytest.approx(factor, rel=0.06)
    assert factors[0][1] == pytest.approx(factors[0][0])


def test_a_worker_of_its_own_follows_the_mean_of_its_own_tokens(worlds):
    gradients = random_gradients(1, 0)

    def work(cluster: Cluster) -> list[Tensor]:
        worker = Worker(cluster, local(every=3))
        return worker.exchanged(gradients, worker.stats(tokens=TOKENS_OF_BATCH / 4))

    for got, given_ in zip(worlds[2](work)[0], gradients, strict=True):
        torch.testing.assert_close(got, 4 * given_)


@pytest.mark.parametrize("name", METHODS)
def test_a_worker_without_tokens_adds_nothing_and_breaks_nothing(worlds, name):
    def work(cluster: Cluster) -> tuple[list[Tensor], StepStats | None, Tensor]:
        worker = Worker(cluster, METHODS[name])
        idle = cluster.rank == 1
        gradients = [None] * len(SHAPES) if idle else random_gradients(1, 0)
        exchanged = worker.exchanged(gradients, worker.stats(tokens=0.0 if idle else 100.0))
        return exchanged, worker.exchange.synchronize(flush=True), worker.weights

    (_, stats, weights), (idle, idle_stats, idle_weights) = worlds[2](work)
    assert stats is not None
    assert stats.pack().tolist() == idle_stats.pack().tolist()
    assert all(bool(gradient.isfinite().all()) for gradient in idle)
    assert torch.equal(weights, idle_weights)
    if name == "plain":
        assert all(torch.equal(got, wanted) for got, wanted in zip(idle, random_gradients(1, 0), strict=True))


def test_an_exchange_that_is_restored_goes_on_as_the_one_that_was_saved(worlds):
    def work(cluster: Cluster) -> tuple[Tensor, Tensor]:
        whole, restored = (Worker(cluster, local(every=2)) for _ in range(2))
        whole.take_steps(random_moves(1, cluster.rank, 2))
        restored.move(whole.weights - restored.weights)
        restored.exchange.load_state_dict(
            {name: tensor.clone() for name, tensor in whole.exchange.state_dict().items()}
        )
        for worker in (whole, restored):
            worker.take_steps(random_moves(2, cluster.rank, 2))
        return whole.weights, restored.weights

    whole, restored = worlds[2](work)[0]
    torch.testing.assert_close(restored, whole, rtol=0, atol=1e-6)


def test_a_saved_state_is_not_touched_by_what_comes_after(worlds):
    def work(cluster: Cluster) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        worker = Worker(cluster, local(every=1))
        worker.take_steps(random_moves(1, cluster.rank, 1))
        saved = {name: tensor.clone() for name, tensor in worker.exchange.state_dict().items()}
        kept = {name: tensor.clone() for name, tensor in saved.items()}
        worker.exchange.load_state_dict(saved)
        worker.take_steps(random_moves(2, cluster.rank, 1))
        return saved, kept

    saved, kept = worlds[2](work)[0]
    assert all(torch.equal(saved[name], kept[name]) for name in kept)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    ("name", "ring_bytes", "gathered_bytes"),
    [
        ("plain", 4 * 2048, 0),
        ("bf16", 2 * 2048, 0),
        ("powersgd", 4 * 2 * (64 + 32), 0),
        ("local, bf16", 2 * 2048 + 4, 0),
        ("local, int8", 4, 2048 + 4 * 2048 // BLOCK),
    ],
)
def test_every_byte_on_the_wire_is_counted(worlds, name, world, ring_bytes, gathered_bytes):
    """A sum passes each element twice along a ring; what is gathered goes to each of the others.

    With local steps a number travels beside the stats: how far each worker moved.
    """

    def work(cluster: Cluster) -> int:
        worker = Worker(cluster, METHODS[name], [(64, 32)])
        before = cluster.bytes_sent
        worker.exchanged(random_gradients(1, cluster.rank, [(64, 32)]))
        worker.exchange.synchronize(flush=True)
        return cluster.bytes_sent - before

    stats_bytes = 4 * packed_size(world)
    wanted = 2 * (world - 1) / world * (ring_bytes + stats_bytes) + (world - 1) * gathered_bytes
    assert worlds[world](work) == pytest.approx([wanted] * world, abs=3)


@pytest.mark.parametrize("name", METHODS)
def test_a_worker_that_is_alone_exchanges_nothing_and_keeps_its_gradient(name):
    alone = Cluster(0, 1, 1, torch.device("cpu"))
    worker = Worker(alone, METHODS[name])
    gradients = random_gradients(1, 0)
    exchanged = worker.exchanged(gradients, worker.stats(tokens=TOKENS_OF_BATCH))
    assert all(torch.equal(got, wanted) for got, wanted in zip(exchanged, gradients, strict=True))
    assert alone.bytes_sent == 0
    alone.close()

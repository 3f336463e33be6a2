"""Elastic worlds: real lighthouses, and workers that are threads of this process."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

from dragoman.distributed import elastic_cluster, heartbeat
from dragoman.distributed.elastic_cluster import SILENCE_S, ElasticCluster, Participant
from dragoman.distributed.process_group import WorkersLateError, WorkersLostError

from .lighthouse_process import Lighthouse
from .test_heartbeat import wait_until
from .thread_workers import short_timeout, wait_for_closed_groups

T = TypeVar("T")
TIMEOUT_S = 100.0


@pytest.fixture(scope="module")
def lighthouses() -> Iterator[list[Lighthouse]]:
    started = [Lighthouse(), Lighthouse()]
    for lighthouse in started:
        lighthouse.wait_until_ready()
    yield started
    for lighthouse in started:
        lighthouse.kill()


@pytest.fixture(scope="module", autouse=True)
def _abandoned_groups() -> Iterator[None]:
    """Operations of abandoned groups must end before this process does."""
    with short_timeout():
        yield
    wait_for_closed_groups()


class Workers:
    """Elastic workers of one run, which all act at the same time."""

    def __init__(self, lighthouses: Sequence[Lighthouse], workers: int) -> None:
        self._addresses = [lighthouse.address for lighthouse in lighthouses]
        self._workers = workers
        self._pool = ThreadPoolExecutor(max_workers=16)
        self.present: dict[int, ElasticCluster] = {}

    def start(self, *workers: int) -> None:
        for worker in workers:
            self.present[worker] = ElasticCluster(
                self._addresses, "secret", worker, self._workers, 1, torch.device("cpu")
            )

    def stop(self, worker: int) -> None:
        self.present.pop(worker).close()

    def freeze(self, worker: int) -> None:
        """Stop the heartbeats of a worker to all lighthouses, unnoticed by the worker itself."""
        for connection in self.present[worker]._lighthouses:
            connection.close()

    def unfreeze(self, worker: int) -> None:
        cluster = self.present[worker]
        cluster._lighthouses = [cluster._connect_to(relay) for relay in cluster._lighthouse_relays]

    def wait_until_unused(self, lighthouse: int) -> None:
        """Wait until no worker uses a lighthouse any more."""
        while any(worker._lighthouses[lighthouse].answers for worker in self.present.values()):
            time.sleep(0.05)

    def run(self, work: Callable[[ElasticCluster], T], workers: Sequence[int] | None = None) -> list[T]:
        clusters = [self.present[worker] for worker in workers or sorted(self.present)]
        return [done.result(TIMEOUT_S) for done in [self._pool.submit(work, cluster) for cluster in clusters]]

    def submit(self, work: Callable[[ElasticCluster], T], worker: int) -> "Future[T]":
        return self._pool.submit(work, self.present[worker])

    def form_world(self, *workers: int) -> None:
        """Refresh these workers, despite losses, until each is in a world of just them."""
        expected = [f"worker {worker} on {self.present[worker].host}" for worker in workers]
        self.run(lambda worker: _refresh_until(worker, expected), workers)

    def close(self) -> None:
        for worker in list(self.present):
            self.stop(worker)
        self._pool.shutdown(wait=False, cancel_futures=True)
        # The interpreter must not exit while one of these threads is in torchft.
        for thread in threading.enumerate():
            if thread.name.startswith("heartbeats to"):
                thread.join(TIMEOUT_S)


def _refresh_until(worker: ElasticCluster, expected: Sequence[str]) -> None:
    while True:
        try:
            worker.refresh()
            worker.all_gather_json("all are present")
        except WorkersLostError as lost:
            worker.leave_world(lost)
            continue
        if list(map(str, worker.members)) == expected:
            return


@pytest.fixture
def workers(lighthouses: list[Lighthouse]) -> Iterator[Workers]:
    started = Workers(lighthouses, workers=3)
    yield started
    started.close()


def count_workers(worker: ElasticCluster) -> float:
    return worker.all_reduce(torch.ones(1)).item()


def test_a_run_starts_with_all_workers_and_ranks_in_their_order(workers):
    workers.start(2, 0, 1)
    assert workers.run(lambda worker: worker.refresh()) == [True] * 3
    assert workers.run(lambda worker: worker.rank) == [0, 1, 2]
    assert workers.run(count_workers) == [3, 3, 3]


def test_a_world_does_not_change_without_a_reason(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    for _ in range(3):
        assert workers.run(lambda worker: worker.refresh()) == [False] * 3


def test_workers_start_without_the_rest_after_a_while(workers, monkeypatch):
    monkeypatch.setattr(elastic_cluster, "ASSEMBLY_S", 1.0)
    workers.start(0, 2)
    workers.form_world(0, 2)


def test_a_world_continues_without_a_lost_worker_and_a_new_one_joins(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    workers.stop(1)
    workers.form_world(0, 2)
    assert workers.run(count_workers) == [2, 2]
    workers.start(1)
    workers.form_world(0, 1, 2)
    assert workers.run(count_workers) == [3, 3, 3]


def test_a_quorum_does_not_wait_for_the_former_life_of_a_restarted_worker(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    former = workers.present[1]  # The lighthouses still count it as alive.
    former.heartbeat.close()
    former._group = None
    workers.start(1)
    workers.form_world(0, 1, 2)
    assert workers.run(count_workers) == [3, 3, 3]
    former.close()


def test_a_restarted_worker_waits_until_the_others_have_left_the_world_of_its_former_life(workers):
    """They learn of its death from the same quorum that it is in again."""
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    first, _, third = workers.run(lambda worker: worker._losses)  # A busy machine may lose a worker for a moment.
    workers.stop(1)
    workers.start(1)
    workers.form_world(0, 1, 2)
    losses = workers.run(lambda worker: worker._losses)
    assert losses == [first + 1, 0, third + 1], "it joined too early and waited in vain"


def test_a_worker_that_connects_slowly_to_the_store_of_a_new_world_is_not_lost(workers, monkeypatch):
    monkeypatch.setattr(heartbeat, "JOIN_S", TIMEOUT_S)
    reach_store = ElasticCluster._reach_store

    def reach_store_slowly(worker: ElasticCluster, first: Participant) -> int:
        if worker.worker == 2:
            time.sleep(1.5 * SILENCE_S)
        return reach_store(worker, first)

    monkeypatch.setattr(ElasticCluster, "_reach_store", reach_store_slowly)
    workers.start(0, 1, 2)
    assert workers.run(lambda worker: worker.refresh()) == [True] * 3
    assert workers.run(count_workers) == [3, 3, 3]


def test_a_worker_that_is_not_in_the_quorum_is_reported_as_lost(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    workers.freeze(2)

    def lost_workers(worker: ElasticCluster) -> list[str]:
        try:
            while not worker.refresh():
                pass
        except WorkersLostError as lost:
            return [str(member) for member, _ in lost.missing]
        return []

    assert workers.run(lost_workers, [0, 1]) == [[f"worker 2 on {workers.present[2].host}"]] * 2


def test_a_frozen_worker_rejoins_the_others(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    workers.freeze(2)
    workers.form_world(0, 1)
    workers.unfreeze(2)
    workers.form_world(0, 1, 2)
    assert workers.run(count_workers) == [3, 3, 3]


def test_workers_of_a_world_know_of_others_that_wait_until_they_can_join(workers):
    workers.start(0, 1)
    workers.form_world(0, 1)
    assert workers.run(look, [0, 1]) == [False, False]
    workers.start(2)
    joined = workers.submit(lambda worker: worker.refresh(), 2)

    def wait_for_newcomers(worker: ElasticCluster) -> None:
        wait_until(lambda: worker.has_newcomers)

    workers.run(wait_for_newcomers, [0, 1])
    assert not joined.done(), "the others only look, and stay in their world"
    workers.run(lambda worker: worker.refresh(), [0, 1])
    assert joined.result(TIMEOUT_S)
    assert workers.run(count_workers) == [3, 3, 3]
    assert workers.run(look, [0, 1, 2]) == [False, False, False]


def look(worker: ElasticCluster) -> bool:
    """Whether a worker knows of newcomers after it has looked for them."""
    wait_until(lambda: worker.has_newcomers or worker._look is not None)
    wait_until(lambda: worker.has_newcomers or worker._look is None)
    return worker.has_newcomers


def test_workers_in_time_continue_without_a_late_one_which_joins_them_later(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)

    def late_workers(worker: ElasticCluster) -> list[str]:
        worker.arrive()
        with pytest.raises(WorkersLateError) as raised:
            worker.wait_for_quorum(0.6, 0.0)
        worker.leave_world(raised.value)
        return [str(member) for member, _ in raised.value.missing]

    late = [f"worker 2 on {workers.present[2].host}"]
    assert workers.run(late_workers, [0, 1]) == [late] * 2
    workers.form_world(0, 1)  # The lighthouse does not wait for worker 2, which is alive and computes.
    assert workers.present[2].heartbeat.left_behind
    assert workers.run(late_workers, [2]) == [late]
    workers.form_world(0, 1, 2)

    def wait_for_all(worker: ElasticCluster) -> None:
        worker.arrive()
        worker.wait_for_quorum(0.6, TIMEOUT_S)

    assert workers.run(wait_for_all) == [None] * 3


def test_bytes_sent_in_earlier_worlds_are_counted(workers):
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    workers.run(lambda worker: worker.all_reduce(torch.ones(3000)))
    before = workers.run(lambda worker: worker.bytes_sent, [0, 2])
    workers.stop(1)
    workers.form_world(0, 2)
    after = workers.run(lambda worker: worker.bytes_sent, [0, 2])
    assert all(later > earlier >= 16_000 for earlier, later in zip(before, after, strict=True))


def test_the_world_survives_the_loss_of_all_lighthouses(workers, lighthouses):
    """The last test of this module: it stops all lighthouses."""
    workers.start(0, 1, 2)
    workers.form_world(0, 1, 2)
    lighthouses[0].kill()
    workers.wait_until_unused(0)
    workers.form_world(0, 1, 2)
    workers.stop(0)
    workers.form_world(1, 2)
    lighthouses[1].kill()
    workers.wait_until_unused(1)
    assert workers.run(lambda worker: worker.refresh()) == [False] * 2
    assert workers.run(count_workers) == [2, 2]

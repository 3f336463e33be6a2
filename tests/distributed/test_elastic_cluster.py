"""A world whose workers come and go: real lighthouses, and workers that are threads of this process."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

from dragoman.distributed import elastic_cluster, process_group
from dragoman.distributed.elastic_cluster import ElasticCluster, LighthouseConnection
from dragoman.distributed.process_group import WorkersLostError

from .thread_workers import impatient

T = TypeVar("T")
PATIENCE_S = 100.0


class Lighthouse:
    """A process of its own, as on every machine: one in ours would not let go of its connections."""

    def __init__(self) -> None:
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "dragoman.launch.lighthouse", str(port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RUST_LOG": "error"}
        )

    def wait_until_lit(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("http")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def lighthouses() -> Iterator[list[Lighthouse]]:
    lit = [Lighthouse(), Lighthouse()]
    for lighthouse in lit:
        lighthouse.wait_until_lit()
    yield lit
    for lighthouse in lit:
        lighthouse.kill()


@pytest.fixture(scope="module", autouse=True)
def _left_behind() -> Iterator[None]:
    """What still waits in groups that were abandoned must have ended before this process does."""
    with impatient():
        yield
    process_group._ABANDONED.clear()


class Workers:
    """Elastic workers of one job, who all act at the same time."""

    def __init__(self, lighthouses: Sequence[Lighthouse], job: int) -> None:
        self._addresses = [lighthouse.address for lighthouse in lighthouses]
        self._job = job
        self._pool = ThreadPoolExecutor(max_workers=16)
        self.present: dict[int, ElasticCluster] = {}

    def come(self, *workers: int) -> None:
        for worker in workers:
            self.present[worker] = ElasticCluster(self._addresses, worker, self._job, 1, torch.device("cpu"))

    def go(self, worker: int) -> None:
        self.present.pop(worker).close()

    def freeze(self, worker: int) -> None:
        """Let no lighthouse hear of a worker any more, which itself notices nothing."""
        for connection in self.present[worker]._lighthouses:
            connection.close()

    def thaw(self, worker: int) -> None:
        cluster = self.present[worker]
        cluster._lighthouses = [LighthouseConnection(address, cluster._name) for address in self._addresses]

    def notice_death(self, lighthouse: int) -> None:
        """Wait until no worker would ask a lighthouse any more."""
        while any(worker._lighthouses[lighthouse].answers for worker in self.present.values()):
            time.sleep(0.05)

    def do(self, work: Callable[[ElasticCluster], T], workers: Sequence[int] | None = None) -> list[T]:
        clusters = [self.present[worker] for worker in workers or sorted(self.present)]
        return [done.result(PATIENCE_S) for done in [self._pool.submit(work, cluster) for cluster in clusters]]

    def meet(self, *workers: int) -> None:
        """Let these workers look around, through losses, until each is in a world of just them."""
        wanted = [f"worker {worker} on {self.present[worker].host}" for worker in workers]
        self.do(lambda worker: _look_around(worker, wanted), workers)

    def close(self) -> None:
        for worker in list(self.present):
            self.go(worker)
        self._pool.shutdown(wait=False, cancel_futures=True)
        # The interpreter must not end while one of them is inside of torchft.
        for thread in threading.enumerate():
            if thread.name.startswith("heartbeats to"):
                thread.join(PATIENCE_S)


def _look_around(worker: ElasticCluster, wanted: Sequence[str]) -> None:
    while True:
        try:
            worker.refresh()
            worker.all_gather_json("all are here")
        except WorkersLostError as lost:
            worker.leave_world(lost)
            continue
        if list(map(str, worker.members)) == wanted:
            return


@pytest.fixture
def workers(lighthouses: list[Lighthouse]) -> Iterator[Workers]:
    made = Workers(lighthouses, job=3)
    yield made
    made.close()


def count(worker: ElasticCluster) -> float:
    return worker.all_reduce(torch.ones(1)).item()


def test_a_job_begins_when_all_are_there_with_ranks_in_the_order_of_workers(workers):
    workers.come(2, 0, 1)
    assert workers.do(lambda worker: worker.refresh()) == [True] * 3
    assert workers.do(lambda worker: worker.rank) == [0, 1, 2]
    assert workers.do(count) == [3, 3, 3]


def test_as_long_as_nobody_comes_or_goes_the_world_stays(workers):
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    for _ in range(3):
        assert workers.do(lambda worker: worker.refresh()) == [False] * 3


def test_whoever_has_waited_long_enough_begins_without_the_rest(workers, monkeypatch):
    monkeypatch.setattr(elastic_cluster, "ASSEMBLY_S", 1.0)
    workers.come(0, 2)
    workers.meet(0, 2)


def test_a_lost_worker_is_done_without_and_a_late_one_joins(workers):
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    workers.go(1)
    workers.meet(0, 2)
    assert workers.do(count) == [2, 2]
    workers.come(1)
    workers.meet(0, 1, 2)
    assert workers.do(count) == [3, 3, 3]


def test_a_worker_that_is_no_longer_counted_is_told_as_lost(workers):
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    workers.freeze(2)

    def lose(worker: ElasticCluster) -> list[str]:
        try:
            while not worker.refresh():
                pass
        except WorkersLostError as lost:
            return [str(member) for member, _ in lost.missing]
        return []

    assert workers.do(lose, [0, 1]) == [[f"worker 2 on {workers.present[2].host}"]] * 2


def test_a_worker_that_froze_and_noticed_nothing_meets_the_others_again(workers):
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    workers.freeze(2)
    workers.meet(0, 1)
    workers.thaw(2)
    workers.meet(0, 1, 2)
    assert workers.do(count) == [3, 3, 3]


def test_what_was_sent_in_earlier_worlds_still_counts(workers):
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    workers.do(lambda worker: worker.all_reduce(torch.ones(3000)))
    before = workers.do(lambda worker: worker.bytes_sent, [0, 2])
    workers.go(1)
    workers.meet(0, 2)
    after = workers.do(lambda worker: worker.bytes_sent, [0, 2])
    assert all(later > earlier >= 16_000 for earlier, later in zip(before, after, strict=True))


def test_the_loss_of_lighthouses_changes_nothing_as_long_as_no_worker_is_lost(workers, lighthouses):
    """The last test of this module: it leaves none."""
    workers.come(0, 1, 2)
    workers.meet(0, 1, 2)
    lighthouses[0].kill()
    workers.notice_death(0)
    workers.meet(0, 1, 2)
    workers.go(0)
    workers.meet(1, 2)
    lighthouses[1].kill()
    workers.notice_death(1)
    assert workers.do(lambda worker: worker.refresh()) == [False] * 2
    assert workers.do(count) == [2, 2]

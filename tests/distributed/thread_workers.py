"""Workers that are threads of one process: real groups and collectives, without the start of processes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from dragoman.distributed import process_group
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import Member, WorkerProcessGroup

T = TypeVar("T")


@contextmanager
def short_timeout() -> Iterator[None]:
    """Groups formed meanwhile have a short timeout, and are closed soon after they were abandoned.

    All workers belong to one process, which closes their groups one by one: the first waits for the others.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "TIMEOUT", timedelta(seconds=10))
        patch.setattr(process_group, "CLOSE_S", 3.0)
        yield


def wait_for_closed_groups() -> None:
    """Wait until all abandoned groups are closed."""
    for thread in threading.enumerate():
        if thread.name == process_group.CLOSING_THREAD:
            thread.join()


class ThreadCluster(Cluster):
    """The world as one thread sees it."""

    def __init__(self, worker: int, hosts: Sequence[str]) -> None:
        super().__init__(worker, len(hosts), 1, torch.device("cpu"))
        self.host = hosts[worker]
        self.heartbeat.listen("127.0.0.1", "secret")
        self.member = self._this_member("127.0.0.1")

    def connect(self, members: Sequence[Member], port: int, world: str) -> None:
        """Leave the present group, if there is one, and connect to the members of another."""
        if self._group is not None:
            self._group.abandon()
        store = TCPStore("127.0.0.1", port, is_master=False)
        rank = members.index(self.member)
        self._group = WorkerProcessGroup(world, store, rank, members, self.device, self.heartbeat, self._report_stall)

    def arrive(self) -> None:
        self.heartbeat.arrive()

    def wait_for_quorum(self, quorum: float, grace_s: float) -> None:
        assert self._group is not None
        self._group.wait_for_quorum(quorum, grace_s)


class ThreadWorkers:
    """One worker for each given host. Call it to run a function on every worker."""

    def __init__(self, *hosts: str) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.clusters = [ThreadCluster(worker, hosts) for worker in range(len(hosts))]
        self._pool = ThreadPoolExecutor(max_workers=len(hosts))
        with short_timeout():
            self(lambda cluster: self.form_world(cluster, "threads", range(len(hosts))))

    def form_world(self, cluster: ThreadCluster, world: str, workers: Sequence[int]) -> None:
        """Connect one of these workers to the others, which call this too."""
        cluster.connect([self.clusters[worker].member for worker in workers], self._store.port, world)

    def __call__(self, work: Callable[[ThreadCluster], T]) -> list[T]:
        """The results of all workers, by rank."""

        def run(cluster: ThreadCluster) -> T:
            try:
                return work(cluster)
            except BaseException:
                cluster.heartbeat.close()  # Otherwise the others would wait for this worker.
                raise

        return list(self._pool.map(run, self.clusters))

    def __enter__(self) -> "ThreadWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        for cluster in self.clusters:
            cluster.close()
        self._pool.shutdown()

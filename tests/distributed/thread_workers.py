"""Workers that are threads of one process: real groups and real sums, without the time that processes take to start."""

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
def impatient() -> Iterator[None]:
    """Groups that are made meanwhile give up what never ends. In tests all workers are of one process, which closes
    its groups one by one: the first would wait for the others, and with the usual patience half an hour."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_group, "TIMEOUT", timedelta(seconds=10))
        yield


class ThreadCluster(Cluster):
    """One thread's place in the world."""

    def __init__(self, worker: int, hosts: Sequence[str]) -> None:
        super().__init__(worker, len(hosts), 1, torch.device("cpu"))
        self.host = hosts[worker]
        self.member = self._this_member(f"thread-{worker}", "127.0.0.1")

    def connect(self, members: Sequence[Member], port: int) -> None:
        store = TCPStore("127.0.0.1", port, is_master=False)
        self._group = WorkerProcessGroup(
            "threads", store, self.worker, members, self.device, self.heartbeat, self._report_stall
        )


class ThreadWorkers:
    """A worker for each host that is named. Call it with what each of them is to do."""

    def __init__(self, *hosts: str) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.clusters = [ThreadCluster(worker, hosts) for worker in range(len(hosts))]
        self._pool = ThreadPoolExecutor(max_workers=len(hosts))
        members = [cluster.member for cluster in self.clusters]
        with impatient():
            self(lambda cluster: cluster.connect(members, self._store.port))

    def __call__(self, work: Callable[[ThreadCluster], T]) -> list[T]:
        """What each worker's part gave, by rank."""

        def run(cluster: ThreadCluster) -> T:
            try:
                return work(cluster)
            except BaseException:
                cluster.heartbeat.close()  # Else the others would wait for this one.
                raise

        return list(self._pool.map(run, self.clusters))

    def __enter__(self) -> "ThreadWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        for cluster in self.clusters:
            cluster.close()
        self._pool.shutdown()

"""A world that workers join and leave during a run, coordinated by torchft's lighthouse.

Before each step every worker requests the quorum from the lighthouse: the workers that are alive and have requested it
too. While it stays the same, nothing happens. When it changes, its workers reconnect and split the same batch.

Every machine runs a lighthouse, and every worker sends heartbeats to all of them and uses the first one that answers
steadily. So the machine that started the run can be lost like any other. After a network partition both halves may
continue; when they rejoin, all workers take over the state of the half with more steps.
"""

import hashlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
from torch._C._distributed_c10d import TCPStore
from torchft.coordination import LighthouseClient, Quorum

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import (
    NO_HEARTBEAT,
    Member,
    WorkerProcessGroup,
    WorkersLostError,
    address_towards,
)

HEARTBEAT_INTERVAL_S = 0.1
POLL_S = 0.1
ANSWER_S = 1.0
"""A lighthouse that has not answered for this long is skipped."""
STEADY_S = 3.0
"""A lighthouse that comes back is used only after this long, when all workers have noticed it: otherwise workers would
use different lighthouses."""
CONNECT_TIMEOUT = timedelta(seconds=1)
QUORUM_TIMEOUT = timedelta(seconds=10)
ASSEMBLY_S = 30.0
"""Time that newly started workers wait for the other workers of the run."""


class ElasticCluster(Cluster):
    """An elastic world, as one of its workers sees it."""

    def __init__(
        self, lighthouses: Sequence[str], worker: int, workers: int, local_world_size: int, device: torch.device
    ) -> None:
        super().__init__(worker, workers, local_world_size, device)
        # Names sort like worker numbers, which gives the ranks, and a restarted worker gets a new name.
        self._name = f"{worker:05d}-{uuid.uuid4().hex}"
        first = urlsplit(lighthouses[0])
        address = address_towards(first.hostname or "", first.port or 0)
        self._store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        self._member = self._this_member(self._name, address)
        self._lighthouses = [LighthouseConnection(address, self._name) for address in lighthouses]
        self._key = ""
        self._fresh = True
        """True until this worker has been in a world."""
        self._losses = 0
        """Groups that this worker has left after a loss. Part of the key, so that the next group has another one."""
        self._started_at = time.monotonic()
        self._requests = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")

    def refresh(self) -> bool:
        """Ask for the quorum, and connect to its workers if it has changed. Waits until a lighthouse answers."""
        while True:
            quorum = self._request_quorum()
            if quorum is None:
                if self._group is not None:
                    return False  # No lighthouse answers, but no worker is missing: the world stays as it is.
                time.sleep(POLL_S)
                continue
            if self._group is None and self._should_wait(quorum):
                time.sleep(POLL_S)
                continue
            key = _quorum_key(quorum)
            if self._group is not None and key == self._key:
                return False
            self._raise_if_members_left(quorum)
            self._connect(key, quorum)
            return True

    @property
    def survives_losses(self) -> bool:
        return True

    @property
    def is_main(self) -> bool:
        return self._group is not None and self.rank == 0

    def leave_world(self, lost: WorkersLostError) -> None:  # noqa: ARG002 (any loss is survived)
        self._losses += 1
        self._leave_group()

    def close(self) -> None:
        for lighthouse in self._lighthouses:
            lighthouse.close()
        super().close()

    def exit_process(self, exit_code: int) -> None:
        sys.stdout.flush()
        os._exit(exit_code)

    def _request_quorum(self) -> Quorum | None:
        """The quorum of the first lighthouse that answers, or None."""
        lighthouse = self._choose_lighthouse()
        if lighthouse is None:
            return None
        data = {**vars(self._member), "store_port": self._store.port, "losses": self._losses, "fresh": self._fresh}
        answer = self._requests.submit(lighthouse.quorum, data)
        # If the lighthouse stops answering, abandon the request and use the next lighthouse.
        while not answer.done() and self._choose_lighthouse() is lighthouse:
            wait([answer], timeout=POLL_S)
        if answer.done():
            return answer.result()
        self._requests.shutdown(wait=False)
        self._requests = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        return None

    def _choose_lighthouse(self) -> "LighthouseConnection | None":
        """The lighthouse to use: the same for all workers, except while one starts or stops answering."""
        steady = next((lighthouse for lighthouse in self._lighthouses if lighthouse.is_steady), None)
        return steady or next((lighthouse for lighthouse in self._lighthouses if lighthouse.answers), None)

    def _should_wait(self, quorum: Quorum) -> bool:
        """True at the start of the run, until all its workers are present or `ASSEMBLY_S` has passed."""
        fresh = all(each["fresh"] for each in _worker_data(quorum))
        missing = len(quorum.participants) < self.workers
        return fresh and missing and time.monotonic() - self._started_at < ASSEMBLY_S

    def _raise_if_members_left(self, quorum: Quorum) -> None:
        """Treat a member that is no longer in the quorum as lost.

        Otherwise it might return and form a group with the key of the one that it has not left yet.
        """
        before = self._group.members if self._group is not None else ()
        present = {each.replica_id for each in quorum.participants}
        gone = [(member, self.heartbeat.last_activity(member.name)) for member in before if member.name not in present]
        if gone:
            raise WorkersLostError(gone, NO_HEARTBEAT)

    def _connect(self, key: str, quorum: Quorum) -> None:
        """Connect the workers of a quorum. The TCP store of the first one is their rendezvous."""
        self._leave_group()
        data = _worker_data(quorum)
        members = [Member(**{field: each[field] for field in Member.__annotations__}) for each in data]
        rank = [member.name for member in members].index(self._name)
        self._key, self._fresh = key, False
        try:
            store = TCPStore(members[0].address, int(data[0]["store_port"]), is_master=False, timeout=QUORUM_TIMEOUT)
            self._group = WorkerProcessGroup(key, store, rank, members, self.device, self.heartbeat, self._report_stall)
        except RuntimeError as error:  # The worker with the store was lost.
            raise WorkersLostError([(members[0], "connecting")], str(error).partition("\n")[0]) from None

    def _leave_group(self) -> None:
        if self._group is not None:
            self._bytes_sent_before = self.bytes_sent
            self._group.abandon()
            self._group = None


class LighthouseConnection:
    """This worker's connection to one lighthouse. A thread sends it heartbeats."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._client: LighthouseClient | None = None
        self._answered_at = -float("inf")
        self._answering_since = float("inf")
        self._closed = threading.Event()
        threading.Thread(target=self._send_heartbeats, name=f"heartbeats to {address}", daemon=True).start()

    @property
    def answers(self) -> bool:
        return time.monotonic() - self._answered_at < ANSWER_S

    @property
    def is_steady(self) -> bool:
        """True after it has answered for `STEADY_S` without a break."""
        return self.answers and time.monotonic() - self._answering_since > STEADY_S

    def quorum(self, data: dict[str, object]) -> Quorum | None:
        """The workers that are alive and have requested the quorum too; None if the lighthouse fails."""
        try:
            client = self._client or LighthouseClient(self._address, CONNECT_TIMEOUT)
            return client.quorum(
                self._name, QUORUM_TIMEOUT, address="", store_address="", step=0, world_size=1, data=data
            )
        except (RuntimeError, TimeoutError):
            return None

    def close(self) -> None:
        self._closed.set()

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(HEARTBEAT_INTERVAL_S):
            try:
                client = self._client or LighthouseClient(self._address, CONNECT_TIMEOUT)
                client.heartbeat(self._name, CONNECT_TIMEOUT)
                if not self.answers:
                    self._answering_since = time.monotonic()
                self._client, self._answered_at = client, time.monotonic()
            except (RuntimeError, TimeoutError):
                self._client = None


def _worker_data(quorum: Quorum) -> list[dict[str, Any]]:
    """The data that each worker of a quorum has sent, by rank."""
    return [dict(member.data or {}) for member in sorted(quorum.participants, key=lambda member: member.replica_id)]


def _quorum_key(quorum: Quorum) -> str:
    """A key for the group of a quorum: the same for all its workers, and a new one after every loss."""
    parts = [[each["name"], each["losses"]] for each in _worker_data(quorum)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

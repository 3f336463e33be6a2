"""A world that workers join and leave during a run, coordinated by torchft's lighthouse.

Before each step every worker requests the quorum from the lighthouse: the workers that are alive and have requested it
too. While it stays the same, nothing happens. When it changes, its workers reconnect and split the same batch.

Lighthouses and stores listen on loopback addresses only, behind authenticated relays, and what workers say of
themselves in a quorum is signed.

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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore
from torchft.coordination import LighthouseClient, Quorum

from dragoman.authentication import is_signed, sign
from dragoman.distributed.cluster import Cluster, own_address
from dragoman.distributed.process_group import NO_HEARTBEAT, Member, WorkerProcessGroup, WorkersLostError
from dragoman.distributed.static_store import serve_store
from dragoman.relay import LIGHTHOUSE, LOOPBACK, STORE, RelayClient, RelayServer

SILENCE_S = 1.5
"""A worker without a heartbeat for this long counts as lost. A busy machine misses a few heartbeats, not fifteen; a
worker declared lost by mistake rejoins before the next step."""
HEARTBEAT_INTERVAL_S = 0.1
POLL_S = 0.1
START_POLL_S = 0.01
"""A worker that has just started looks this often for a lighthouse that answers: the others wait for it."""
ANSWER_S = 1.0
"""A lighthouse that has not answered for this long is skipped."""
STEADY_S = 3.0
"""A lighthouse that comes back is used only after this long, when all workers have noticed it: otherwise workers would
use different lighthouses."""
CONNECT_TIMEOUT = timedelta(seconds=1)
QUORUM_TIMEOUT = timedelta(seconds=10)
STORE_S = 3.0
"""Time to reach the store of a new world: its worker has just asked for the quorum."""
LOOK_S = 0.5
"""Time between two looks for workers that wait until they can join."""
ASSEMBLY_S = 30.0
"""Time that newly started workers wait for the other workers of the run."""


class ElasticCluster(Cluster):
    """An elastic world, as one of its workers sees it."""

    def __init__(
        self,
        lighthouses: Sequence[tuple[str, int]],
        secret: str,
        worker: int,
        workers: int,
        local_world_size: int,
        device: torch.device,
    ) -> None:
        """`lighthouses` are the addresses and ports of the relays that lead to them."""
        super().__init__(worker, workers, local_world_size, device, SILENCE_S)
        self._secret = secret
        address = own_address(*lighthouses[0])
        self.heartbeat.listen(address, secret)
        self._store = serve_store()
        rejections = self.heartbeat.rejections
        self._store_server = RelayServer(address, 0, secret, STORE, self._store.port, rejections)
        self._store_client: RelayClient | None = None
        self._member = self._this_member(address)
        self._lighthouse_relays = [RelayClient(*each, secret, LIGHTHOUSE) for each in lighthouses]
        self._lighthouses: list[LighthouseConnection] = []
        self._key = ""
        self._fresh = True
        """True until this worker has been in a world."""
        self._losses = 0
        """Groups that this worker has left after a loss. Part of the key, so that the next group has another one."""
        self._started_at = 0.0
        self._requests = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        self._look: Future[Quorum | None] | None = None
        self._looked_at = 0.0
        self._has_newcomers = False

    @property
    def has_newcomers(self) -> bool:
        """Asks for the quorum in the background from time to time, without leaving the present world for another."""
        if self._look is not None and self._look.done():
            quorum, self._look, self._looked_at = self._look.result(), None, time.monotonic()
            present = (quorum and self._find_participants(quorum)) or []
            self._has_newcomers = any(each.member not in self.members for each in present)
        is_due = self._look is None and not self._has_newcomers and time.monotonic() - self._looked_at > LOOK_S
        if is_due and (lighthouse := self._choose_lighthouse()) is not None:
            own = replace(self._participant(), is_ready=False)
            self._look = self._requests.submit(lighthouse.quorum, own.sign(self._secret))
        return self._has_newcomers

    def refresh(self) -> bool:
        """Ask for the quorum, and connect to its workers if it has changed. Waits until a lighthouse answers."""
        self._stop_looking()
        if not self._lighthouses:
            # Not earlier: a quorum waits for workers that send heartbeats and are not ready to join.
            self._started_at = time.monotonic()
            self._lighthouses = [self._connect_to(relay) for relay in self._lighthouse_relays]
        while True:
            present = self._request_quorum()
            if present is None:
                if self._group is not None:
                    return False  # No lighthouse answers, but no worker is missing: the world stays as it is.
                time.sleep(START_POLL_S)
                continue
            is_incomplete = self._group is None and self._should_wait(present)
            if is_incomplete or not all(each.is_ready for each in present):
                time.sleep(POLL_S)
                continue
            key = _quorum_key(present)
            if self._group is not None and key == self._key:
                return False
            self._raise_if_members_left(present)
            if _is_outdated(present):
                continue
            self._connect(key, present)
            return True

    @property
    def survives_losses(self) -> bool:
        return True

    @property
    def is_main(self) -> bool:
        return self._group is not None and self.rank == 0

    def arrive(self) -> None:
        self.heartbeat.arrive()

    def wait_for_quorum(self, quorum: float, grace_s: float) -> None:
        if self._group is not None:
            self._group.wait_for_quorum(quorum, grace_s)

    def leave_world(self, lost: WorkersLostError) -> None:  # noqa: ARG002 (any loss is survived)
        self._losses += 1
        self._leave_group()

    def close(self) -> None:
        for lighthouse in self._lighthouses:
            lighthouse.close()
        for relay in self._lighthouse_relays:
            relay.close()
        self._store_server.close()
        super().close()

    def exit_process(self, exit_code: int) -> None:
        sys.stdout.flush()
        os._exit(exit_code)

    def _connect_to(self, relay: RelayClient) -> "LighthouseConnection":
        # A restarted worker takes the place of its former life: no quorum waits until that one counts as dead. Nor must
        # the others wait for a late worker, so it sends no heartbeats.
        return LighthouseConnection(relay.port, str(self.worker), lambda: not self.heartbeat.left_behind)

    def _request_quorum(self) -> "list[Participant] | None":
        """The workers in the quorum of the first lighthouse that answers, by rank, or None."""
        lighthouse = self._choose_lighthouse()
        if lighthouse is None:
            return None
        answer = self._requests.submit(lighthouse.quorum, self._participant().sign(self._secret))
        # If the lighthouse stops answering, abandon the request and use the next lighthouse.
        while not answer.done() and self._choose_lighthouse() is lighthouse:
            wait([answer], timeout=POLL_S)
        if not answer.done():
            self._abandon_request()
            return None
        quorum = answer.result()
        return None if quorum is None else self._find_participants(quorum)

    def _participant(self) -> "Participant":
        """This worker, as it describes itself to the others."""
        world = tuple(member.name for member in self._group.members) if self._group is not None else ()
        return Participant(self._member, self._store_server.port, self._losses, self._fresh, world)

    def _stop_looking(self) -> None:
        """The next request is answered together with that of the look, if there is one, and replaces it."""
        if self._look is not None:
            self._abandon_request()
        self._look, self._looked_at, self._has_newcomers = None, time.monotonic(), False

    def _abandon_request(self) -> None:
        self._requests.shutdown(wait=False)
        self._requests = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")

    def _find_participants(self, quorum: Quorum) -> "list[Participant] | None":
        """The workers of this launch in a quorum, by rank. Other users of a machine can reach its lighthouse."""
        found = [Participant.verify(self._secret, dict(each.data or {})) for each in quorum.participants]
        present = sorted((each for each in found if each is not None), key=lambda each: each.member.name)
        for _ in range(len(found) - len(present)):
            self.heartbeat.rejections.add("a lighthouse")
        return present if self.name in {each.member.name for each in present} else None

    def _choose_lighthouse(self) -> "LighthouseConnection | None":
        """The lighthouse to use: the same for all workers, except while one starts or stops answering."""
        steady = next((lighthouse for lighthouse in self._lighthouses if lighthouse.is_steady), None)
        return steady or next((lighthouse for lighthouse in self._lighthouses if lighthouse.answers), None)

    def _should_wait(self, present: "Sequence[Participant]") -> bool:
        """True at the start of the run, until all its workers are present or `ASSEMBLY_S` has passed."""
        fresh = all(each.fresh for each in present)
        return fresh and len(present) < self.workers and time.monotonic() - self._started_at < ASSEMBLY_S

    def _raise_if_members_left(self, present: "Sequence[Participant]") -> None:
        """Treat a member that is no longer in the quorum as lost.

        Otherwise it might return and form a group with the key of the one that it has not left yet.
        """
        before = self._group.members if self._group is not None else ()
        names = {each.member.name for each in present}
        gone = [(member, self.heartbeat.last_activity(member.name)) for member in before if member.name not in names]
        if gone:
            raise WorkersLostError(gone, NO_HEARTBEAT)

    def _connect(self, key: str, present: "Sequence[Participant]") -> None:
        """Connect the workers of a quorum. The TCP store of the first one is their rendezvous."""
        self._leave_group()
        members = [each.member for each in present]
        rank = [member.name for member in members].index(self.name)
        self._key, self._fresh = key, False
        try:
            store = TCPStore(LOOPBACK, self._reach_store(present[0]), is_master=False, timeout=QUORUM_TIMEOUT)
            self._group = WorkerProcessGroup(key, store, rank, members, self.device, self.heartbeat, self._report_stall)
        except (OSError, RuntimeError) as error:  # The worker with the store was lost.
            raise WorkersLostError([(members[0], "connecting")], str(error).partition("\n")[0]) from None

    def _reach_store(self, first: "Participant") -> int:
        """A port of this machine that leads to the store of a worker."""
        if first.member == self._member:
            return self._store.port
        if self._store_client is not None:
            self._store_client.close()
        self._store_client = RelayClient(first.member.address, first.store_port, self._secret, STORE)
        self._store_client.wait_for_server(STORE_S)
        return self._store_client.port

    def _leave_group(self) -> None:
        if self._group is not None:
            self._bytes_sent_before, self._communication_before_s = self.bytes_sent, self.communication_s
            self._group.abandon()
            self._group = None


class LighthouseConnection:
    """This worker's connection to one lighthouse, through a relay on this port. A thread sends it heartbeats."""

    def __init__(self, port: int, name: str, is_joining: Callable[[], bool]) -> None:
        """No heartbeats are sent while `is_joining` returns False, so that no quorum waits for this worker."""
        self._address = f"http://{LOOPBACK}:{port}"
        self._name, self._is_joining = name, is_joining
        self._client: LighthouseClient | None = None
        self._answered_at = -float("inf")
        self._answering_since = float("inf")
        self._closed = threading.Event()
        threading.Thread(target=self._send_heartbeats, name=f"heartbeats to {self._address}", daemon=True).start()

    @property
    def answers(self) -> bool:
        return time.monotonic() - self._answered_at < ANSWER_S

    @property
    def is_steady(self) -> bool:
        """True after it has answered for `STEADY_S` without a break."""
        return self.answers and time.monotonic() - self._answering_since > STEADY_S

    def quorum(self, data: Mapping[str, str]) -> Quorum | None:
        """The workers that are alive and have requested the quorum too; None if the lighthouse fails."""
        try:
            client = self._client or LighthouseClient(self._address, CONNECT_TIMEOUT)
            return client.quorum(
                self._name, QUORUM_TIMEOUT, address="", store_address="", step=0, world_size=1, data=dict(data)
            )
        except (RuntimeError, TimeoutError):
            return None

    def close(self) -> None:
        self._closed.set()

    def _send_heartbeats(self) -> None:
        self._send_heartbeat()
        while not self._closed.wait(HEARTBEAT_INTERVAL_S):
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        if not self._is_joining():
            return
        try:
            client = self._client or LighthouseClient(self._address, CONNECT_TIMEOUT)
            client.heartbeat(self._name, CONNECT_TIMEOUT)
            if not self.answers:
                self._answering_since = time.monotonic()
            self._client, self._answered_at = client, time.monotonic()
        except (RuntimeError, TimeoutError):
            self._client = None


@dataclass(frozen=True)
class Participant:
    """A worker in a quorum, as it describes itself to the others."""

    member: Member
    store_port: int
    losses: int
    fresh: bool
    world: tuple[str, ...] = ()
    """Names of the members of the world that it is still in."""
    is_ready: bool = True
    """False for a worker that cannot leave its world yet, and only looks for others that wait."""

    def sign(self, secret: str) -> dict[str, str]:
        """The description as a lighthouse carries it, with a signature."""
        content = json.dumps(asdict(self))
        return {"content": content, "signature": sign(secret, b"participant", content.encode()).hex()}

    @classmethod
    def verify(cls, secret: str, data: Mapping[str, Any]) -> "Participant | None":
        """The description of a member of the launch; None for anything else."""
        try:
            signature, content = bytes.fromhex(data["signature"]), data["content"]
            if not is_signed(secret, signature, b"participant", content.encode()):
                return None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        fields = json.loads(content)
        return cls(**{**fields, "member": Member(**fields["member"]), "world": tuple(fields["world"])})


def _is_outdated(present: Sequence[Participant]) -> bool:
    """True if a worker of a quorum learns from it that its world has lost a worker: it leaves it, and asks again."""
    names = {each.member.name for each in present}
    return any(not names.issuperset(each.world) for each in present)


def _quorum_key(present: Sequence[Participant]) -> str:
    """A key for the group of a quorum: the same for all its workers, and a new one after every loss."""
    parts = [[each.member.name, each.losses] for each in present]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

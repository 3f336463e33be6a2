"""A world whose workers come and go, on torchft's lighthouse.

Before each step every worker asks the lighthouse for the quorum: the workers that are alive and asking too. As long as
it stays the same, nothing happens. When it changes, those who are in it connect anew and split the same batch.

Every machine runs a lighthouse and every worker tells all of them that it lives; the first in their order that answers
steadily is the one that is asked. So no machine is special, and the loss of the one that started the job is a loss like
any other. Should a cut network leave two halves that both go on, nothing is mixed up: when they meet again, the half
that came further is the run, and the other takes over its state.
"""

import hashlib
import json
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
from dragoman.distributed.process_group import NO_SIGN, Member, WorkerGroup, WorkersLostError, address_towards

BEAT_S = 0.1
ANSWER_S = 1.0
"""A lighthouse that has not answered for this long is passed over."""
SETTLE_S = 3.0
"""One that comes back is used only after this long, when all workers have noticed it: else some would ask here, and
some there."""
CONNECT = timedelta(seconds=1)
QUORUM = timedelta(seconds=10)
ASSEMBLY_S = 30.0
"""How long workers that have just been started wait for the rest of the job."""


class ElasticCluster(Cluster):
    """This worker's place in a world that changes."""

    def __init__(
        self, lighthouses: Sequence[str], worker: int, workers: int, local_world: int, device: torch.device
    ) -> None:
        super().__init__(worker, workers, local_world, device)
        # In the order of workers, so that ranks follow them; of this life only, so that the dead are not taken for us.
        self._name = f"{worker:05d}-{uuid.uuid4().hex}"
        first = urlsplit(lighthouses[0])
        address = address_towards(first.hostname or "", first.port or 0)
        self._store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        self._member = self._myself(self._name, address)
        self._lights = [Light(address, self._name) for address in lighthouses]
        self._key = ""
        self._fresh = True
        """Whether this worker has not been in any world yet."""
        self._losses = 0
        """How many groups this worker has seen break: the same workers then form another one."""
        self._started_at = time.monotonic()
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")

    def renew(self) -> bool:
        """Ask who is there, and connect to them if they are others than before. Waits until someone answers."""
        while True:
            quorum = self._ask()
            if quorum is None:
                if self._group is not None:
                    return False  # No lighthouse, but nobody is missing: the world stands as it is.
                time.sleep(BEAT_S)
                continue
            if self._group is None and self._should_wait(quorum):
                time.sleep(BEAT_S)
                continue
            key = _key(quorum)
            if self._group is not None and key == self._key:
                return False
            self._miss(quorum)
            self._connect(key, quorum)
            return True

    @property
    def elastic(self) -> bool:
        return True

    @property
    def is_first(self) -> bool:
        return self._group is not None and self.rank == 0

    def lose(self) -> None:
        self._losses += 1
        self._leave_group()

    def leave(self) -> None:
        for light in self._lights:
            light.close()
        super().leave()

    def _ask(self) -> Quorum | None:
        """The quorum of the first lighthouse that answers, or nothing."""
        light = self._find_light()
        if light is None:
            return None
        data = {**vars(self._member), "store_port": self._store.port, "losses": self._losses, "fresh": self._fresh}
        answer = self._asking.submit(light.quorum, data)
        # A lighthouse may be lost while we ask it: then the question is left behind, and put to the next.
        while not answer.done() and self._find_light() is light:
            wait([answer], timeout=BEAT_S)
        if answer.done():
            return answer.result()
        self._asking.shutdown(wait=False)
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        return None

    def _find_light(self) -> "Light | None":
        """The lighthouse to ask: the same for all workers, but for moments."""
        steady = next((light for light in self._lights if light.settled), None)
        return steady or next((light for light in self._lights if light.answers), None)

    def _should_wait(self, quorum: Quorum) -> bool:
        """Whether this is the start of the job, and not all are there yet."""
        fresh = all(each["fresh"] for each in _described(quorum))
        missing = len(quorum.participants) < self.workers
        return fresh and missing and time.monotonic() - self._started_at < ASSEMBLY_S

    def _miss(self, quorum: Quorum) -> None:
        """Take it as a loss like any other when someone of our world is no longer counted.

        Were it only left out, it might come back and form a world of the same name as the one that it is still in.
        """
        before = self._group.members if self._group is not None else ()
        present = {each.replica_id for each in quorum.participants}
        gone = [(member, self.pulse.last_words(member.name)) for member in before if member.name not in present]
        if gone:
            raise WorkersLostError(gone, NO_SIGN)

    def _connect(self, key: str, quorum: Quorum) -> None:
        """Form the group of a quorum's workers. The first of them keeps the store in which they find each other."""
        self._leave_group()
        described = _described(quorum)
        members = [Member(**{field: each[field] for field in Member.__annotations__}) for each in described]
        rank = [member.name for member in members].index(self._name)
        self._key, self._fresh = key, False
        try:
            store = TCPStore(members[0].address, int(described[0]["store_port"]), is_master=False, timeout=QUORUM)
            self._group = WorkerGroup(key, store, rank, members, self.device, self.pulse, self._hangs)
        except RuntimeError as error:  # The store's: its host is gone.
            raise WorkersLostError([(members[0], "connecting")], str(error).splitlines()[0]) from None

    def _leave_group(self) -> None:
        if self._group is not None:
            self._sent_before = self.bytes_sent
            self._group.abandon()
            self._group = None


class Light:
    """One lighthouse as a worker sees it. A thread tells it all the time that this worker lives."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._client: LighthouseClient | None = None
        self._answered_at = -float("inf")
        self._answering_since = float("inf")
        self._closed = threading.Event()
        threading.Thread(target=self._beat, name=f"beats for {address}", daemon=True).start()

    @property
    def answers(self) -> bool:
        return time.monotonic() - self._answered_at < ANSWER_S

    @property
    def settled(self) -> bool:
        """Whether it has answered for a while without a break."""
        return self.answers and time.monotonic() - self._answering_since > SETTLE_S

    def quorum(self, data: dict[str, object]) -> Quorum | None:
        """The workers that are alive and ask as well; nothing where the lighthouse fails meanwhile."""
        try:
            client = self._client or LighthouseClient(self._address, CONNECT)
            return client.quorum(self._name, QUORUM, address="", store_address="", step=0, world_size=1, data=data)
        except (RuntimeError, TimeoutError):
            return None

    def close(self) -> None:
        self._closed.set()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            try:
                client = self._client or LighthouseClient(self._address, CONNECT)
                client.heartbeat(self._name, CONNECT)
                if not self.answers:
                    self._answering_since = time.monotonic()
                self._client, self._answered_at = client, time.monotonic()
            except (RuntimeError, TimeoutError):
                self._client = None


def _described(quorum: Quorum) -> list[dict[str, Any]]:
    """What each worker of a quorum says of itself, by rank."""
    return [dict(member.data or {}) for member in sorted(quorum.participants, key=lambda member: member.replica_id)]


def _key(quorum: Quorum) -> str:
    """A name for the group of a quorum: the same for all its workers, and another after every loss."""
    parts = [[each["name"], each["losses"]] for each in _described(quorum)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

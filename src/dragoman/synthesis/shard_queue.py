"""Shards that are leased to workers until one of them has finished each.

A worker that is lost gives its leases back. When no new shard is left, idle workers also take those that others still
work on, the oldest first: the last shards do not wait for the slowest machine, and no shard is lost with its holder.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from dragoman.synthesis.text_shards import TextShard


@dataclass
class _Lease:
    shard: TextShard
    holders: list[str] = field(default_factory=list)


class ShardQueue:
    """Thread-safe. Only shards on lease are in memory."""

    def __init__(self, shards: Iterator[TextShard]) -> None:
        self._shards = shards
        self._leases: dict[int, _Lease] = {}
        """Shards that are not finished, by number, in the order of their first leases."""
        self._all_leased = False
        self._changed = threading.Condition()

    def take(self, worker: str) -> TextShard | None:
        """The next shard for a worker; None if there is none for it at present."""
        with self._changed:
            lease = self._unheld() or self._next() or self._shared(worker)
            if lease is None:
                return None
            lease.holders.append(worker)
            return lease.shard

    def finish(self, number: int) -> bool:
        """End the leases of a shard. False if another worker was faster."""
        with self._changed:
            lease = self._leases.pop(number, None)
            self._changed.notify_all()
            return lease is not None

    def is_open(self, number: int) -> bool:
        """Whether a shard that was leased is not finished yet."""
        with self._changed:
            return number in self._leases

    def release(self, worker: str) -> None:
        """Give back all leases of a worker that was lost."""
        with self._changed:
            for lease in self._leases.values():
                if worker in lease.holders:
                    lease.holders.remove(worker)
            self._changed.notify_all()

    @property
    def is_done(self) -> bool:
        with self._changed:
            return self._all_leased and not self._leases

    def wait(self, timeout_s: float) -> None:
        """Wait until a shard was finished or given back."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _unheld(self) -> _Lease | None:
        return next((lease for lease in self._leases.values() if not lease.holders), None)

    def _next(self) -> _Lease | None:
        shard = next(self._shards, None)
        if shard is None:
            self._all_leased = True
            return None
        self._leases[shard.number] = lease = _Lease(shard)
        return lease

    def _shared(self, worker: str) -> _Lease | None:
        others = [lease for lease in self._leases.values() if worker not in lease.holders]
        return min(others, key=lambda lease: len(lease.holders), default=None)

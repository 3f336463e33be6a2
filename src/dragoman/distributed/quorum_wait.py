"""The wait at a synchronisation: for all workers, and once the quorum has arrived, for a grace period."""

import math
import time

from dragoman.distributed.heartbeat import Heartbeat

ARRIVAL_POLL_S = 0.005


class QuorumWait:
    """Call it until it returns True: all have arrived, or this worker has given up waiting for the late ones."""

    def __init__(self, heartbeat: Heartbeat, world_size: int, quorum: float, grace_s: float) -> None:
        self._heartbeat, self._grace_s = heartbeat, grace_s
        self._most_late = math.floor((1 - quorum) * world_size + 1e-9)  # 1 - 0.8 is a little less than 0.2.
        self._give_up_at_s = math.inf

    def __call__(self, _limit_s: float) -> bool:
        late, now = self._heartbeat.awaited(), time.monotonic()
        if not late:
            return True
        if len(late) <= self._most_late:
            self._give_up_at_s = min(self._give_up_at_s, now + self._grace_s)
        if now < self._give_up_at_s:
            time.sleep(ARRIVAL_POLL_S)
            return False
        self._heartbeat.give_up()
        return True

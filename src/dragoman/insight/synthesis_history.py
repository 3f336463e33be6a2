"""The past of a synthesis, from its log: sessions, shards, and the times in which each worker was ready."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.event_log import read_events
from dragoman.events import Event
from dragoman.insight.time_and_cost import HourlyCost
from dragoman.run_folder import SYNTHESIS_FILE, RunFolder
from dragoman.synthesis_events import ShardTranslated, SynthesisEnded, SynthesisStarted, TranslatorChanged

RECENT_S = 600.0
"""The speed of the last minutes predicts the rest: machines come and go."""
SILENT_S = 600.0
"""A synthesis without an event for this long is probably killed."""
TRANSLATING, IN_WORK, EARLIER = "translating", "shards in work", "earlier sessions"
"""Activities in the use of time."""


def is_synthesis(path: Path) -> bool:
    """Whether `dragoman synthesize` made a folder."""
    return (path / SYNTHESIS_FILE).is_file() and RunFolder(path).events_of(0).exists()


@dataclass
class WorkerTimes:
    """Times of a worker in a session."""

    ready_s: float = 0.0
    lost_s: float = 0.0
    """The part of it whose work was lost: between its last result and its loss."""
    last_s: float = 0.0
    """The part of it after its last result."""
    ready_at_s: float | None = None
    """None if it is not ready."""
    result_at_s: float = 0.0

    @property
    def is_ready(self) -> bool:
        return self.ready_at_s is not None

    def change(self, state: str, at_s: float) -> None:
        """It became ready, was lost, or was left out."""
        self.end(at_s)
        self.lost_s, self.last_s = self.lost_s + self.last_s, 0.0
        self.ready_at_s = at_s if state == "ready" else None

    def end(self, at_s: float) -> None:
        if self.ready_at_s is not None:
            self.ready_s += at_s - self.ready_at_s
            self.last_s = at_s - max(self.ready_at_s, self.result_at_s)


@dataclass(frozen=True)
class SynthesisHistory:
    """Events in order; the first is the start of a session."""

    events: Sequence[Event]

    @property
    def sessions(self) -> list[Sequence[Event]]:
        begins = [index for index, event in enumerate(self.events) if isinstance(event, SynthesisStarted)]
        return [self.events[begin:end] for begin, end in pairwise([*begins, None])]

    @property
    def _place(self) -> int:
        """Index of the latest session that translated: one that had no line left only wrote the corpus."""
        sessions = self.sessions
        return max((at for at, each in enumerate(sessions) if _has_lines_left(each)), default=len(sessions) - 1)

    @property
    def session(self) -> Sequence[Event]:
        """Events of the latest session that translated, from its start."""
        return self.sessions[self._place]

    @property
    def started(self) -> SynthesisStarted:
        started = self.session[0]
        assert isinstance(started, SynthesisStarted)
        return started

    @property
    def ended(self) -> SynthesisEnded | None:
        last = self.events[-1]
        return last if isinstance(last, SynthesisEnded) else None

    @property
    def shards(self) -> list[ShardTranslated]:
        return [event for event in self.session if isinstance(event, ShardTranslated)]

    @property
    def done_lines(self) -> int:
        return self.started.done_lines + sum(shard.lines for shard in self.shards)

    def end_s(self, now_s: float) -> float:
        """The end of the session, or the present."""
        last = self.session[-1]
        return now_s if last is self.events[-1] and self.state(now_s) == "running" else last.at_s

    def elapsed_s(self, now_s: float) -> float:
        """Duration of all sessions."""
        return sum(self._durations_s(now_s))

    def _durations_s(self, now_s: float) -> list[float]:
        """Of each session. What a killed one did after its last event is not known."""
        durations_s = [session[-1].at_s - session[0].at_s for session in self.sessions]
        durations_s[-1] += now_s - self.events[-1].at_s if self.state(now_s) == "running" else 0.0
        return durations_s

    def state(self, now_s: float) -> str:
        if self.ended is not None:
            return self.ended.reason
        return "running" if now_s - self.events[-1].at_s < SILENT_S else "not responding"

    def lines_per_s(self, now_s: float) -> float:
        """Speed of the last minutes in which a worker was ready."""
        begin_s, end_s = self._measured(now_s)
        recent = sum(shard.lines for shard in self.shards if begin_s < shard.at_s <= end_s)
        return recent / (end_s - begin_s) if end_s > begin_s else 0.0

    def _measured(self, now_s: float) -> tuple[float, float]:
        """The time of which the speed is known: until the last shard, as long as the next one is not overdue."""
        ready_s = [event.at_s for event in self.session if isinstance(event, TranslatorChanged)]
        times_s = [min(ready_s, default=self.started.at_s), *(shard.at_s for shard in self.shards)]
        longest_s = max((after - before for before, after in pairwise(times_s)), default=0.0)
        is_due = self.end_s(now_s) - times_s[-1] <= longest_s
        end_s = times_s[-1] if is_due else self.end_s(now_s)
        return max(times_s[0], end_s - RECENT_S), end_s

    def remaining_s(self, now_s: float) -> float | None:
        """None until a shard is done, and after the end."""
        speed = self.lines_per_s(now_s)
        if self.ended or not speed:
            return None
        since_s = self.end_s(now_s) - self._measured(now_s)[1]
        return max(0.0, (self.started.lines - self.done_lines) / speed - since_s)

    def lines_by_host(self) -> Counter[str]:
        lines: Counter[str] = Counter()
        for shard in self.shards:
            lines[shard.host] += shard.lines
        return lines

    def workers(self, now_s: float) -> dict[str, "WorkerTimes"]:
        """Times of each worker in the session."""
        found = {host: WorkerTimes() for host in self.started.hosts}
        for event in self.session:
            if isinstance(event, TranslatorChanged):
                found.setdefault(event.host, WorkerTimes()).change(event.state, event.at_s)
            elif isinstance(event, ShardTranslated):
                found[event.host].result_at_s = event.at_s
        # The translation ended before the corpus was written.
        end_s = self.end_s(now_s) - self._writing_s
        for worker in found.values():
            worker.end(end_s)
        return found

    @property
    def _writing_s(self) -> float:
        """Time in which the session wrote the corpus."""
        last = self.session[-1]
        return last.writing_s if isinstance(last, SynthesisEnded) else 0.0

    def time_use(self, now_s: float) -> dict[str, float]:
        """Where the time of the session went, as the mean of its workers. Later ones wrote the corpus."""
        workers, is_finished = self.workers(now_s), self.ended is not None and self.ended.reason == "finished"
        ready_s, lost_s, last_s = (
            sum(getattr(worker, name) for worker in workers.values()) for name in ("ready_s", "lost_s", "last_s")
        )
        translating_s, tokenizing_s, reading_s = (
            sum(getattr(shard, name) for shard in self.shards)
            for name in ("translating_s", "tokenizing_s", "reading_s")
        )
        # What went on while a worker searched other shards cost no time.
        waiting_s = max(0.0, ready_s - lost_s - last_s - translating_s)
        tokenizing_s = min(tokenizing_s, waiting_s)
        reading_s = min(reading_s, waiting_s - tokenizing_s)
        durations_s, place = self._durations_s(now_s), self._place
        session_s, writing_s = durations_s[place], self._writing_s
        sums_s = {
            TRANSLATING: translating_s,
            "tokenizing": tokenizing_s,
            "reading text": reading_s,
            "waiting for the network": waiting_s - tokenizing_s - reading_s,
            "hosts starting or lost": max(0.0, len(workers) * (session_s - writing_s) - ready_s + lost_s),
            # What a worker does after its last result is known only when no shard is left.
            "no shard left": last_s if is_finished else 0.0,
            IN_WORK: 0.0 if is_finished else last_s,
        }
        return {
            **{activity: seconds / len(workers) for activity, seconds in sums_s.items()},
            "writing the corpus": writing_s + sum(durations_s[place + 1 :]),
            EARLIER: sum(durations_s[:place]),
        }

    @property
    def cost(self) -> HourlyCost | None:
        """The hourly cost of all machines; None unless there is one price, or one for each machine."""
        prices, hosts = self.started.price_per_hour, len(self.started.hosts)
        if len(prices) not in (1, hosts):
            return None
        return HourlyCost(prices[0] * hosts if len(prices) == 1 else sum(prices), self.started.currency)


def read_synthesis(path: Path) -> SynthesisHistory:
    """The history of the synthesis in a folder."""
    events = read_events(RunFolder(path).events_of(0))[0]
    if not any(isinstance(event, SynthesisStarted) for event in events):
        raise DragomanError(f"{path} has not started translating yet: wait for its first lines.")
    return SynthesisHistory(events)


def _has_lines_left(session: Sequence[Event]) -> bool:
    started = session[0]
    return isinstance(started, SynthesisStarted) and started.done_lines < started.lines

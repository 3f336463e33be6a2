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
from dragoman.run_folder import RunFolder
from dragoman.synthesis_events import ShardTranslated, SynthesisEnded, SynthesisStarted, TranslatorChanged

SYNTHESIS_FILE = "synthesis.json"
RECENT_S = 600.0
"""The speed of the last minutes predicts the rest: machines come and go."""
SILENT_S = 600.0
"""A synthesis without an event for this long is probably killed."""


def is_synthesis(path: Path) -> bool:
    """Whether `dragoman synthesize` made a folder."""
    return (path / SYNTHESIS_FILE).is_file() and RunFolder(path).events_of(0).exists()


@dataclass(frozen=True)
class SynthesisHistory:
    """Events in order; the first is the start of a session."""

    events: Sequence[Event]

    @property
    def started(self) -> SynthesisStarted:
        """The start of the latest session."""
        return next(event for event in reversed(self.events) if isinstance(event, SynthesisStarted))

    @property
    def session(self) -> Sequence[Event]:
        """Events of the latest session, from its start."""
        return self.events[len(self.events) - 1 - list(reversed(self.events)).index(self.started) :]

    @property
    def ended(self) -> SynthesisEnded | None:
        last = self.events[-1]
        return last if isinstance(last, SynthesisEnded) else None

    @property
    def shards(self) -> list[ShardTranslated]:
        """Of the latest session."""
        return [event for event in self.session if isinstance(event, ShardTranslated)]

    @property
    def done_lines(self) -> int:
        return self.started.done_lines + sum(shard.lines for shard in self.shards)

    def end_s(self, now_s: float) -> float:
        """The end of the latest session, or the present."""
        return self.events[-1].at_s if self.state(now_s) != "running" else now_s

    def elapsed_s(self, now_s: float) -> float:
        """Duration of all sessions."""
        begins = [index for index, event in enumerate(self.events) if isinstance(event, SynthesisStarted)]
        earlier = [self.events[after - 1].at_s - self.events[index].at_s for index, after in pairwise(begins)]
        return sum(earlier) + self.end_s(now_s) - self.started.at_s

    def state(self, now_s: float) -> str:
        if self.ended is not None:
            return self.ended.reason
        return "running" if now_s - self.events[-1].at_s < SILENT_S else "not responding"

    def lines_per_s(self, now_s: float) -> float:
        """Speed of the last minutes of the session."""
        end_s = self.end_s(now_s)
        begin_s = max(self.started.at_s, end_s - RECENT_S)
        recent = sum(shard.lines for shard in self.shards if shard.at_s > begin_s)
        return recent / (end_s - begin_s) if end_s > begin_s else 0.0

    def remaining_s(self, now_s: float) -> float | None:
        """None until a shard is done, and after the end."""
        speed = self.lines_per_s(now_s)
        return None if self.ended or not speed else (self.started.lines - self.done_lines) / speed

    def lines_by_host(self) -> Counter[str]:
        lines: Counter[str] = Counter()
        for shard in self.shards:
            lines[shard.host] += shard.lines
        return lines

    def ready_s(self, now_s: float) -> dict[str, float]:
        """Time in which each worker was ready, in the latest session."""
        since_s: dict[str, float] = {}
        total_s: dict[str, float] = dict.fromkeys(self.started.hosts, 0.0)
        for event in self.session:
            if isinstance(event, TranslatorChanged):
                begin_s = since_s.pop(event.host, event.at_s)
                total_s[event.host] = total_s.get(event.host, 0.0) + event.at_s - begin_s
                if event.state == "ready":
                    since_s[event.host] = event.at_s
        for host, begin_s in since_s.items():
            total_s[host] += self._last_work_s(now_s) - begin_s
        return total_s

    def _last_work_s(self, now_s: float) -> float:
        """When the translation ended: before the corpus was written."""
        return self.end_s(now_s) - (self.ended.writing_s if self.ended else 0.0)

    def time_use(self, now_s: float) -> dict[str, float]:
        """Where the time of the latest session went, as the mean of its workers."""
        ready_s = self.ready_s(now_s)
        working_s = self._last_work_s(now_s) - self.started.at_s
        ready = sum(ready_s.values()) / len(ready_s)
        translating = min(ready, sum(shard.translating_s for shard in self.shards) / len(ready_s))
        return {
            "translating": translating,
            "waiting for text or the network": ready - translating,
            "hosts starting or lost": max(0.0, working_s - ready),
            "writing the corpus": self.ended.writing_s if self.ended else 0.0,
            "earlier sessions": self.elapsed_s(now_s) - (self.end_s(now_s) - self.started.at_s),
        }

    @property
    def cost(self) -> HourlyCost | None:
        """The hourly cost of all machines; None unless there is one price, or one for each machine."""
        prices, hosts = self.started.price_per_hour, len(self.started.hosts)
        if len(prices) not in (1, hosts):
            return None
        return HourlyCost(prices[0] * hosts if len(prices) == 1 else sum(prices), self.started.currency)


def read_synthesis(path: Path) -> SynthesisHistory:
    """The history of the synthesis in a folder. A corpus that was only made again has no session of its own."""
    events = read_events(RunFolder(path).events_of(0))[0]
    kept = [
        event
        for index, event in enumerate(events)
        if not isinstance(event, SynthesisEnded) or not isinstance(events[index - 1], SynthesisEnded)
    ]
    if not any(isinstance(event, SynthesisStarted) for event in kept):
        raise DragomanError(f"{path} has not started translating yet: wait for its first lines.")
    return SynthesisHistory(kept)

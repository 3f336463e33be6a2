"""Time left in a distillation: of all parts that are still to be made, as far as something was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.distillation.distillation_folder import DistillationFolder, Part
from dragoman.errors import DragomanError
from dragoman.insight.run_history import read_history
from dragoman.insight.synthesis_history import is_synthesis, read_synthesis
from dragoman.insight.time_and_cost import estimate_remaining_time
from dragoman.number_format import span
from dragoman.telemetry.remaining_time import MEASURING

BASELINE = "baseline "


@dataclass(frozen=True)
class RemainingParts:
    """Time of the parts that are still to be made."""

    known_s: Mapping[str, float]
    unknown: Sequence[str]
    """Parts of which nothing was measured yet."""

    @property
    def total_s(self) -> float | None:
        """None if a part is not known."""
        return None if self.unknown else sum(self.known_s.values())

    def __str__(self) -> str:
        if self.total_s is not None:
            return f"{span(self.total_s)} left"
        if not self.known_s:
            return f"time left: {MEASURING}"
        known = f"{span(sum(self.known_s.values()))} for {_join(list(self.known_s))}"
        return f"time left: {known}; {MEASURING} {_join(self.unknown)}"


def estimate_parts(folder: DistillationFolder, parts: Sequence[Part], plan: Mapping[str, bool]) -> RemainingParts:
    """Estimate each part that the plan makes: a begun one from its own log, one of the baseline from the student's."""
    known_s, unknown = dict[str, float](), list[str]()
    for part in parts:
        if plan[part.name]:
            seconds = _from_log(folder, part) if folder.state(part) == "begun" else None
            seconds = _from_twin(folder, part) if seconds is None else seconds
            if seconds is None:
                unknown.append(part.name)
            else:
                known_s[part.name] = seconds
    return RemainingParts(known_s, unknown)


def _from_log(folder: DistillationFolder, part: Part) -> float | None:
    """The time left at the end of the last session."""
    try:
        if part.folder == folder.synthetic and is_synthesis(part.folder):
            history = read_synthesis(part.folder)
            speed = history.lines_per_s(history.events[-1].at_s)
            return (history.started.lines - history.done_lines) / speed if speed else None
        if part.name.removeprefix(BASELINE) == "run":
            remaining = estimate_remaining_time(read_history(part.folder))
            return None if remaining is None else remaining.total_s
    except DragomanError:
        pass  # Its first session ended before there was a log.
    return None


def _from_twin(folder: DistillationFolder, part: Part) -> float | None:
    """The student without a teacher takes as long as the one with: it has the same shape, tokenizer and steps."""
    record = folder.records().get(part.name.removeprefix(BASELINE))
    if not part.name.startswith(BASELINE) or record is None or not record.is_complete:
        return None
    return read_history(folder.student.run).elapsed_s if part.name == f"{BASELINE}run" else record.seconds


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

"""Use of time: where the seconds of the whole run went, over all its sessions."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dragoman import events
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import STEP_PARTS

EVALUATION, CHECKPOINTS, AVERAGING = "evaluation", "checkpoint stalls", "averaging"
WORLD_CHANGES, LOST_WORK, OTHER = "changes of workers", "lost work", "other"
ACTIVITIES = (*STEP_PARTS, EVALUATION, CHECKPOINTS, AVERAGING, WORLD_CHANGES, LOST_WORK, OTHER)
"""Activities in the order in which the page draws them."""


def time_by_activity(history: RunHistory) -> dict[str, float]:
    """Seconds of each activity. They sum to `history.elapsed_s`; what no event explains is `other`."""
    elapsed_s = history.elapsed_s
    lost = list(_lost_spans(history))
    measured = {
        **sum_step_parts(history),
        EVALUATION: sum(done.evaluation_s for done in history.evaluations),
        CHECKPOINTS: sum(saved.stall_s for saved in history.checkpoints if not _contains(lost, saved.at_s)),
        AVERAGING: sum(
            averaged.averaging_s
            for averaged in history.incidents_of(events.CheckpointsAveraged)
            if not _contains(lost, averaged.at_s)
        ),
        WORLD_CHANGES: sum(_world_change_gaps_s(history, lost)),
        LOST_WORK: sum(end - start for start, end in lost),
    }
    measured = {activity: max(0.0, seconds) for activity, seconds in measured.items()}
    # Clocks of several machines differ: what they measured may exceed the time between the first and the last event.
    total_s = sum(measured.values())
    scale = elapsed_s / total_s if total_s > elapsed_s else 1.0
    scaled = {activity: scale * seconds for activity, seconds in measured.items()}
    scaled[OTHER] = max(0.0, elapsed_s - sum(scaled.values()))
    return {activity: scaled[activity] for activity in ACTIVITIES}


def sum_step_parts(history: RunHistory) -> dict[str, float]:
    """Seconds of each part over all steps of the run that count."""
    return {part: sum(map(seconds_of, history.spans)) for part, seconds_of in STEP_PARTS.items()}


def between_sessions_s(history: RunHistory) -> float:
    """Time in which the run did not run: between the end of a session and the start of the next one."""
    spans = history.session_spans_s
    return sum(max(0.0, start - end) for (_, end), (start, _) in pairwise(spans))


def elapsed_at(history: RunHistory, at_s: float) -> float:
    """Wall time of the run at a point in time, without the time between sessions."""
    return sum(max(0.0, min(last, at_s) - first) for first, last in history.session_spans_s)


def _lost_spans(history: RunHistory) -> Iterator[tuple[float, float]]:
    """Times whose steps were undone, because the run went back to a checkpoint: after a failure or by a rollback."""
    sessions, spans = history.sessions, history.session_spans_s
    returns = [(end, after.resumed_step) for (_, end), after in zip(spans, sessions[1:], strict=False)]
    returns += [(event.at_s, event.to_step) for event in history.incidents_of(events.RolledBack)]
    lost_until = 0.0
    for at_s, step in sorted(returns):
        session_start = max((start for start, _ in spans if start <= at_s), default=at_s)
        # A later return may go back further than this one.
        lowest = min(later_step for later_at_s, later_step in returns if later_at_s >= at_s)
        start = max(session_start, lost_until, _last_kept_at_s(history, min(step, lowest), at_s))
        if start < at_s:
            yield start, at_s
            lost_until = at_s


def _last_kept_at_s(history: RunHistory, step: int, before_s: float) -> float:
    """When the last thing before some time happened that belongs to a step up to this one."""
    checkpoints = ((saved.step, saved.at_s - saved.write_s) for saved in history.checkpoints)
    averages, ends = history.incidents_of(events.CheckpointsAveraged), history.incidents_of(events.RunEnded)
    others = (
        (event.step, event.at_s) for kind in (history.spans, history.evaluations, averages, ends) for event in kind
    )
    return max((at_s for number, at_s in (*checkpoints, *others) if number <= step and at_s <= before_s), default=0.0)


def _world_change_gaps_s(history: RunHistory, lost: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Time between two steps in which workers were lost or joined, without the evaluations and stalls in it."""
    starts_s = [start for start, _ in (*history.session_spans_s, *lost)]
    ends_s = [span.at_s for span in history.spans]
    if ends_s != sorted(ends_s):
        return  # Clocks of several machines differ: gaps between their times mean nothing.
    changes = [*history.incidents_of(events.WorkersLost), *history.incidents_of(events.WorldChanged)]
    for number in sorted({bisect_right(ends_s, change.at_s) for change in changes}):
        if 0 < number < len(ends_s):
            before_s, after = ends_s[number - 1], history.spans[number]
            if any(before_s <= start <= after.at_s for start in starts_s):
                continue  # A new session, or lost work: that time is counted elsewhere.
            work_s = sum(done.evaluation_s for done in history.evaluations if before_s < done.at_s <= after.at_s)
            work_s += sum(saved.stall_s for saved in history.checkpoints if before_s < saved.at_s <= after.at_s)
            yield max(0.0, after.at_s - after.step_s - before_s - work_s)


def _contains(spans: Sequence[tuple[float, float]], at_s: float) -> bool:
    return any(start < at_s <= end for start, end in spans)

"""Duration and cost."""

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.run_history import RunHistory
from dragoman.insight.time_and_cost import estimate_remaining_time, find_hourly_cost
from dragoman.number_format import count, span
from dragoman.telemetry.remaining_time import describe_remaining_time


def answer_duration(history: RunHistory) -> Answer:
    question = "How long does the run take, and what does it cost?"
    if not history.spans:
        return unknown("duration", question, "no step is done yet")
    elapsed_s, is_running = history.elapsed_s, history.ended is None
    remaining = estimate_remaining_time(history) if is_running else None
    sessions = f" in {len(history.sessions)} sessions" if len(history.sessions) > 1 else ""
    # A machine that was absent has only some of the steps taken meanwhile.
    known = "steps" if history.known_steps == history.step else f"the {count(history.known_steps)} steps known here"
    evidence = [
        f"{count(history.step)} of {count(history.total_steps)} steps; "
        f"{span(sum(each.step_s for each in history.spans))} in {known}",
        f"evaluations {span(sum(done.evaluation_s for done in history.evaluations))}, "
        f"checkpoint stalls {span(sum(saved.stall_s for saved in history.checkpoints))}",
    ]
    if is_running:
        text = f"{span(elapsed_s)} so far{sessions}, {describe_remaining_time(remaining)}"
        if remaining is not None:
            evidence.append(
                f"left: {span(remaining.steps_s)} of steps, {span(remaining.evaluations_s)} of evaluations, "
                f"{span(remaining.checkpoints_s)} of checkpoint stalls"
            )
    else:
        text = f"The run took {span(elapsed_s)}{sessions}"
        if history.ended is not None and history.ended.reason == "interrupted":
            text += f" until it was interrupted at step {count(history.step)} of {count(history.total_steps)}"
    cost = find_hourly_cost(history)
    if cost is None:
        return Answer("duration", question, f"{text}.", [*evidence, "cost unknown: set money.price_per_hour"])
    text += f"; cost {cost.format(elapsed_s)}"
    if remaining is not None:
        text += f" so far, {cost.format(elapsed_s + remaining.total_s)} in total"
    elif is_running:
        text += " so far"
    scores = [done.bleu for done in history.evaluations if done.bleu is not None]
    start = history.start_evaluation
    before = 0.0 if start is None else start.bleu or 0.0
    if scores and (gained := max(scores) - before) > 0:
        point = "BLEU point" if start is None else "BLEU point gained"
        evidence.append(f"{cost.amount(elapsed_s) / gained:,.2f} {cost.currency} per {point}")
    return Answer("duration", question, f"{text}.", evidence)

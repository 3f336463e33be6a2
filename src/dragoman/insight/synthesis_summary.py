"""Summary of a synthesis as JSON, in the form of a run's: the same page shows both."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.files import read_json
from dragoman.insight.answer import Answer
from dragoman.insight.overview import Overview
from dragoman.insight.run_summary import MAX_INCIDENTS, buckets
from dragoman.insight.synthesis_history import (
    EARLIER,
    IN_WORK,
    TRANSLATING,
    SynthesisHistory,
    read_synthesis,
)
from dragoman.number_format import count, percent, span
from dragoman.run_folder import SYNTHESIS_FILE
from dragoman.synthesis_events import TranslatorChanged
from dragoman.telemetry.remaining_time import MEASURING

Json = dict[str, Any]
REMEDIES = {
    TRANSLATING: "Let it run; more machines in --hosts, or a lower decoding.beam, would make it faster.",
    "tokenizing": "Use machines with faster cores, or more machines: each worker tokenizes on one core.",
    "reading text": "Decompress the texts, or move them to a faster disk.",
    "waiting for the network": "Raise --shard-lines, or use machines with a faster link to this one.",
    "hosts starting or lost": "Check the machines that were lost: the event log has the reasons.",
    "no shard left": "Lower --shard-lines: at the end, machines waited for the last shards of others.",
    "writing the corpus": "Nothing: filters and the corpus are made once, at the end.",
}
NO_PAIRS_REMEDY = (
    "Use a better model, or other rules (cleaning.rules): with those, the same command translates nothing again."
)


def summarize_synthesis(path: Path, now_s: float) -> Json:
    """Everything that the page shows."""
    history = read_synthesis(path)
    started, state = history.started, history.state(now_s)
    elapsed_s, remaining_s, cost = history.elapsed_s(now_s), history.remaining_s(now_s), history.cost
    made = read_json(path / SYNTHESIS_FILE)["corpus"]
    answers = [_speed(history, now_s), _hosts(history, now_s), *([_pairs(made)] if made else [])]
    return {
        "kind": "synthesis",
        "run": started.run,
        "state": state,
        "step": history.done_lines,
        "total_steps": started.lines,
        "elapsed_s": elapsed_s,
        "remaining_s": remaining_s,
        "remaining": None if remaining_s is None else span(remaining_s),
        "cost": None if cost is None else {"spent": cost.amount(elapsed_s), "currency": cost.currency},
        "overview": _overview(path, history, made, now_s).to_json(),
        "time_use": history.time_use(now_s),
        "between_sessions_s": 0.0,
        "fine_tuning": [],
        "diagnoses": [],
        "answers": [answer.to_json() for answer in answers],
        "about": {
            "workers": started.hosts,
            "device": started.device,
            "model": started.model,
            "languages": started.languages,
            "version": started.version,
        },
        "curves": _curve(history),
        "evaluations": [],
        "evaluation_sets": [],
        "step_breakdown": {"step": [], "parts": {}, "step_s": []},
        "workers": [],
        "lost": [],
        "hosts": [],
        "checkpoints": [],
        "samples": [],
        "incidents": _incidents(history),
    }


def summarize_syntheses(paths: Sequence[Path], now_s: float) -> list[Json]:
    """Summaries of several. A run among them is an error: there is nothing to compare it by."""
    others = [str(path) for path in paths if not (path / SYNTHESIS_FILE).is_file()]
    if others:
        raise DragomanError(f"{' and '.join(others)} is not a synthesis, but another one is: give them separately.")
    return [summarize_synthesis(path, now_s) for path in paths]


def _overview(path: Path, history: SynthesisHistory, made: Json, now_s: float) -> Overview:
    started, state, cost = history.started, history.state(now_s), history.cost
    elapsed_s, remaining_s = history.elapsed_s(now_s), history.remaining_s(now_s)
    spent = "" if cost is None else f" and {cost.format(elapsed_s)}"
    done = f"{count(history.done_lines)} of {count(started.lines)} lines"
    how = f"{state.capitalize()}: {done} after {span(elapsed_s)}{spent}"
    if state == "running":
        total = "" if cost is None or remaining_s is None else f" ({cost.format(elapsed_s + remaining_s)} in total)"
        how += f", {_describe_remaining(history, remaining_s)}{total}"
    if state == "finished" and made:
        how += f"; {count(made['kept_pairs'])} pairs in the corpus"
    limit, remedy = _limit(history, now_s)
    advice = {
        "finished": f"Make a data set of it: `dragoman prepare {path} --out DATA`."
        if made.get("kept_pairs")
        else NO_PAIRS_REMEDY,
        "running": remedy,
    }.get(state, "Run the same command again: it resumes with the lines that are left.")
    return Overview(f"{how}.", f"{limit[0].upper()}{limit[1:]}", advice, [])


def describe_progress(history: SynthesisHistory, now_s: float) -> str:
    """Speed, time left, cost and what limits it, in two lines, for the terminal."""
    remaining_s, elapsed_s, cost = history.remaining_s(now_s), history.elapsed_s(now_s), history.cost
    facts = [_describe_remaining(history, remaining_s)]
    if remaining_s is not None:
        facts.insert(0, _describe_speed(history, now_s))
    if cost is not None:
        total = "" if remaining_s is None else f", {cost.format(elapsed_s + remaining_s)} in total"
        facts.append(f"{cost.format(elapsed_s)} so far{total}")
    workers = history.workers(now_s)
    ready = sum(worker.is_ready for worker in workers.values())
    if ready < len(workers) or ready > 1:
        facts.append(f"{ready} of {len(workers)} workers ready")
    return f"{'; '.join(facts)}\nWhat limits it: {_limit(history, now_s)[0]}"


def _describe_remaining(history: SynthesisHistory, remaining_s: float | None) -> str:
    if history.done_lines == history.started.lines:
        return "writing the corpus"
    return f"time left: {MEASURING}" if remaining_s is None else f"{span(remaining_s)} left"


def _describe_speed(history: SynthesisHistory, now_s: float) -> str:
    speed = history.lines_per_s(now_s)
    return f"{speed:,.1f} lines/s" if speed < 100 else f"{count(speed)} lines/s"


def _limit(history: SynthesisHistory, now_s: float) -> tuple[str, str]:
    """What limits the speed, and a remedy."""
    use = history.time_use(now_s)
    for activity in (IN_WORK, EARLIER):
        del use[activity]
    total_s = sum(use.values())
    if not history.shards or not total_s:
        return "not known before the first shard is translated.", REMEDIES[TRANSLATING]
    name = max(use, key=lambda activity: use[activity])
    rest = "" if name == TRANSLATING else f"; the machines translate for {percent(use[TRANSLATING] / total_s)}"
    return f"{name}, {percent(use[name] / total_s)} of the time{rest}.", REMEDIES[name]


def _speed(history: SynthesisHistory, now_s: float) -> Answer:
    busy_s = sum(shard.translating_s for shard in history.shards)
    lines = sum(shard.lines for shard in history.shards)
    evidence = [f"{count(lines / busy_s)} lines/s of a worker while it translates."] if busy_s else []
    return Answer("speed", "How fast is it?", f"{_describe_speed(history, now_s)} in the last minutes.", evidence)


def _hosts(history: SynthesisHistory, now_s: float) -> Answer:
    lines, workers = history.lines_by_host(), history.workers(now_s)
    losses = sum(isinstance(event, TranslatorChanged) and event.state == "lost" for event in history.session)
    text = f"{len(lines)} of {len(workers)} workers translated; they were lost {losses} times in this session."
    evidence = [
        f"{host}: {count(lines[host])} lines, ready for {span(worker.ready_s)}." for host, worker in workers.items()
    ]
    return Answer("hosts", "Which machines took part?", text, evidence)


def _pairs(made: Json) -> Answer:
    dropped = {rule: entry["pairs"] for rule, entry in made["dropped"].items()}
    total, kept = made["translated_pairs"], made["kept_pairs"]
    text = f"{count(kept)} of {count(total)} pairs are in the corpus; {count(sum(dropped.values()))} were dropped."
    evidence = [f"{rule}: {count(pairs)} ({percent(pairs / total)})." for rule, pairs in dropped.items()]
    if made.get("min_score") is not None:
        evidence.append(f"Pairs with a score below {made['min_score']:g} were dropped.")
    evidence += [
        f"{rule}: {source} | {target}"
        for rule, entry in made["dropped"].items()
        for source, target, _ in entry["examples"]
    ]
    return Answer("pairs", "What became of the lines?", text, evidence)


def _curve(history: SynthesisHistory) -> Json:
    """Lines a second of the latest session, over all lines done."""
    groups = buckets(history.shards)
    done = accumulate((sum(shard.lines for shard in group) for group in groups), initial=history.started.done_lines)
    ends_s = [history.started.at_s, *(group[-1].at_s for group in groups)]
    spans_s = [after - before for before, after in pairwise(ends_s)]
    speeds = [
        round(sum(shard.lines for shard in group) / max(span_s, 1e-3), 2)
        for group, span_s in zip(groups, spans_s, strict=True)
    ]
    steps, empty = list(done)[1:], [None] * len(groups)
    return {
        "step": steps,
        "elapsed_s": [round(end_s - history.started.at_s, 1) for end_s in ends_s[1:]],
        "tokens_per_s": speeds,
        **dict.fromkeys(("train_loss", "learning_rate", "gradient_norm"), empty),
    }


def _incidents(history: SynthesisHistory) -> list[Json]:
    changes = [event for event in history.events if isinstance(event, TranslatorChanged)]
    return [
        {"at_s": event.at_s, "text": f"{event.host} is {event.state}: {event.detail}."}
        for event in changes[-MAX_INCIDENTS:]
    ]

"""Comparison of runs in words and in a table: settings, data, machines, speed, quality, and which one to prefer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from dragoman.insight.compared_run import ComparedRun, SignificanceTest
from dragoman.insight.run_preference import describe_significance, prefer, rank_runs
from dragoman.insight.step_breakdown import STEP_PARTS, mean_of, mean_part_s, measured_steps
from dragoman.insight.time_use import elapsed_at, time_by_activity
from dragoman.number_format import count, percent, span

MAX_NAMED_SETTINGS = 4
"""Differing settings that are named in words; the table has all of them."""
NOTICEABLE = 0.02
"""Relative difference below which speeds count as equal."""
MIN_DIFFERENCE_S = 1.0
"""Difference in the time of an activity below which it is not named."""

Json = dict[str, Any]


def compare_runs(runs: Sequence[ComparedRun], test: SignificanceTest) -> Json:
    """The comparison of two or more runs, as JSON for page and scripts. Differences are from the first run."""
    ranking = rank_runs(runs, test)
    differing = _differing_settings(runs)
    return {
        "runs": [run.name for run in runs],
        "preference": prefer(runs, ranking),
        "topics": [
            {"topic": topic, "text": text}
            for topic, text in (
                ("Settings", _describe_settings(runs, differing)),
                ("Data", _describe_data(runs)),
                ("Machines", _describe_machines(runs)),
                ("Speed", _describe_speed(runs)),
                ("Time", _describe_time(runs)),
                ("Quality", _describe_quality(runs, are_comparable=ranking.is_comparable)),
                ("Significance", describe_significance(ranking)),
            )
        ],
        "rows": _rows(runs),
        "settings": [{"name": name, "values": list(map(_format, values))} for name, values in differing.items()],
        "significance": {
            name: {"bleu_p_value": found.bleu_p_value, "chrf_p_value": found.chrf_p_value}
            for name, found in ranking.significance.items()
        },
    }


def _differing_settings(runs: Sequence[ComparedRun]) -> dict[str, list[object]]:
    """Settings by name that are not the same in all runs. Those that an older version did not have are left out."""
    flat = [
        {
            f"{section}.{name}": value
            for section, part in run.history.started.settings.items()
            for name, value in part.items()
        }
        for run in runs
    ]
    shared = [name for name in flat[0] if all(name in settings for settings in flat)]
    values = {name: [settings[name] for settings in flat] for name in shared}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def _format(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return count(value)
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(_format, value)) or "none"
    return "none" if value is None else str(value)


def _named(runs: Sequence[ComparedRun], values: Sequence[str]) -> str:
    """Values with the names of their runs: `base 2,000, large 4,000`."""
    return ", ".join(f"{run.name} {value}" for run, value in zip(runs, values, strict=True))


def _describe_settings(runs: Sequence[ComparedRun], differing: dict[str, list[object]]) -> str:
    if not differing:
        return "The same."
    if len(differing) > MAX_NAMED_SETTINGS:
        return f"{len(differing)} differ: {', '.join(f'`{name}`' for name in differing)}."
    return (
        "; ".join(f"`{name}`: {_named(runs, list(map(_format, values)))}" for name, values in differing.items()) + "."
    )


def _describe_facts(runs: Sequence[ComparedRun], facts: Sequence[dict[str, str]]) -> str:
    """Facts that differ, with the names of the runs; all facts once if they are the same."""
    differing = [fact for fact in facts[0] if len({each[fact] for each in facts}) > 1]
    if not differing:
        return f"The same: {', '.join(f'{fact} {value}' for fact, value in facts[0].items())}."
    return "; ".join(f"{fact}: {_named(runs, [each[fact] for each in facts])}" for fact in differing) + "."


def _describe_data(runs: Sequence[ComparedRun]) -> str:
    opened = [run.history.data for run in runs]
    facts = [
        {
            "name": data.name,
            "languages": data.languages,
            "training pairs": count(data.pairs),
            "validation pairs": count(data.valid_pairs),
            "vocabulary": count(data.vocabulary),
        }
        for data in opened
        if data is not None
    ]
    if len(facts) < len(runs):
        return "Not known: not all runs recorded their data."
    text = _describe_facts(runs, facts)
    return text if _share_data(runs) or not text.startswith("The same") else f"Different contents. {text}"


def _share_data(runs: Sequence[ComparedRun]) -> bool:
    return len({run.history.started.data_hash for run in runs}) == 1


def _describe_machines(runs: Sequence[ComparedRun]) -> str:
    facts = [
        {
            "workers": count(len(run.history.workers) or run.history.started.world_size),
            "machines": count(len(run.history.hosts)),
            "device": run.history.started.device,
            "precision": run.history.started.precision,
            "Dragoman": run.history.started.version,
            "torch": run.history.started.torch_version,
        }
        for run in runs
    ]
    return _describe_facts(runs, facts)


def _tokens_per_s(run: ComparedRun) -> float | None:
    steps = measured_steps(run.history)
    step_s = mean_of(steps, "step_s")
    return (mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens")) / step_s if step_s else None


def _describe_speed(runs: Sequence[ComparedRun]) -> str:
    first, *others = runs
    return " ".join(_describe_speed_of(run, first) for run in others)


def _describe_speed_of(run: ComparedRun, first: ComparedRun) -> str:
    speed, base = _tokens_per_s(run), _tokens_per_s(first)
    if speed is None or base is None:
        return f"Not known: too few steps of {run.name if speed is None else first.name} were measured."
    ratio = speed / base
    figures = f"{count(speed)} against {count(base)} tokens/s"
    if abs(ratio - 1) < NOTICEABLE:
        return f"{run.name} is as fast as {first.name}: {figures}."
    word = "faster" if ratio > 1 else "slower"
    # Batches may differ in size, so parts are compared for the same number of tokens.
    differences = {part: _part_per_token_s(run, part) - _part_per_token_s(first, part) for part in STEP_PARTS}
    largest = max(differences, key=lambda part: abs(differences[part]))
    less = "less" if differences[largest] < 0 else "more"
    return (
        f"{run.name} is {percent(abs(ratio - 1))} {word} than {first.name}: {figures}. Per million tokens, the "
        f"largest difference is {largest}: {span(abs(differences[largest]) * 1e6)} {less}."
    )


def _part_per_token_s(run: ComparedRun, part: str) -> float:
    steps = measured_steps(run.history)
    return mean_part_s(steps, part) / (mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens"))


def _describe_time(runs: Sequence[ComparedRun]) -> str:
    """The activity of the whole run in which the time differs most."""
    first, *others = runs
    base = time_by_activity(first.history)
    texts = []
    for run in others:
        used = time_by_activity(run.history)
        longer_s = run.history.elapsed_s - first.history.elapsed_s
        largest = max(used, key=lambda activity: abs(used[activity] - base[activity]))
        text = f"{run.name} took {span(abs(longer_s))} {'longer' if longer_s > 0 else 'less'} than {first.name}"
        difference_s = used[largest] - base[largest]
        if abs(difference_s) >= MIN_DIFFERENCE_S:
            more = "more" if difference_s > 0 else "less"
            text += f"; the largest difference is {largest}, {span(abs(difference_s))} {more}"
        texts.append(f"{text}.")
    return " ".join(texts)


def _losses_by_step(run: ComparedRun) -> list[tuple[float, float]]:
    return [(done.step, done.nll) for done in run.history.evaluations]


def _losses_by_time(run: ComparedRun) -> list[tuple[float, float]]:
    return [(elapsed_at(run.history, done.at_s), done.nll) for done in run.history.evaluations]


def interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at x of the line through points, which are ordered and surround x."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1
    return points[-1][1]


def _equal_point(curves: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """The last point of the shortest curve, if all curves reach it."""
    if not all(curves):
        return None
    last, first = min(curve[-1][0] for curve in curves), max(curve[0][0] for curve in curves)
    return last if first <= last else None


def _loss_rows(runs: Sequence[ComparedRun]) -> list[tuple[str, list[float]]]:
    """Validation losses of all runs at the same step, and after the same time. Empty if they cannot be compared."""
    if not _share_data(runs):
        return []
    rows = []
    by_step, by_time = list(map(_losses_by_step, runs)), list(map(_losses_by_time, runs))
    if (step := _equal_point(by_step)) is not None:
        rows.append((f"at step {count(step)}", [interpolate(curve, step) for curve in by_step]))
    if (elapsed_s := _equal_point(by_time)) is not None:
        rows.append((f"after {span(elapsed_s)}", [interpolate(curve, elapsed_s) for curve in by_time]))
    return rows


def _describe_quality(runs: Sequence[ComparedRun], *, are_comparable: bool) -> str:
    texts = [
        f"Validation loss {name}: {_named(runs, [f'{loss:.3f}' for loss in losses])}."
        for name, losses in _loss_rows(runs)
    ]
    if not _share_data(runs):
        texts.append("Validation losses cannot be compared: the data sets differ.")
    if not are_comparable:
        return " ".join([*texts, "BLEU and chrF cannot be compared."])
    for metric, name in (("bleu", "BLEU"), ("chrf", "chrF")):
        scores = [getattr(run.result, metric) for run in runs]
        if None not in scores:
            texts.append(f"{name}: {_named(runs, [f'{score:.1f}' for score in scores])}.")
    return " ".join(texts)


def _rows(runs: Sequence[ComparedRun]) -> list[Json]:
    """The table: one row for each figure, one value for each run."""

    def score(run: ComparedRun, metric: str, digits: int) -> str:
        value = None if run.result is None else getattr(run.result, metric)
        return "-" if value is None else f"{value:.{digits}f}"

    def cost(run: ComparedRun) -> str:
        return "-" if run.cost is None else f"{run.cost[0]:,.2f} {run.cost[1]}"

    def speed(run: ComparedRun) -> str:
        tokens_per_s = _tokens_per_s(run)
        return "-" if tokens_per_s is None else count(tokens_per_s)

    def step_time(run: ComparedRun) -> str:
        steps = measured_steps(run.history)
        return f"{mean_of(steps, 'step_s'):.3f} s" if steps else "-"

    figures: dict[str, Callable[[ComparedRun], str]] = {
        "state": lambda run: run.state,
        "steps": lambda run: count(run.history.step),
        "BLEU": lambda run: score(run, "bleu", 1),
        "chrF": lambda run: score(run, "chrf", 1),
        "validation loss": lambda run: score(run, "nll", 3),
        "time": lambda run: span(run.history.elapsed_s),
        "cost": cost,
        "tokens/s": speed,
        "step time": step_time,
    }
    rows: list[Json] = [{"name": name, "values": list(map(figure, runs))} for name, figure in figures.items()]
    losses = [
        {"name": f"validation loss {name}", "values": [f"{loss:.3f}" for loss in values]}
        for name, values in _loss_rows(runs)
    ]
    return [*rows[:5], *losses, *(row for row in rows[5:] if set(row["values"]) != {"-"})]

"""The run to prefer: the best translations, and among those that do not differ significantly, the cheapest."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.insight.compared_run import ComparedRun, Significance, SignificanceTest, cheapest_first, describe_cost
from dragoman.number_format import count, percent

SIGNIFICANT = 0.05
SAME_COST = 0.05
"""Relative difference up to which costs count as equal."""
SCORE_COMMAND = "`dragoman score --compare RUN1 RUN2 --data DATA`"


@dataclass(frozen=True)
class Ranking:
    """Runs by the BLEU of their best checkpoints, and what is known of the differences."""

    runs: list[ComparedRun]
    """All runs with BLEU, the best first."""
    significance: dict[str, Significance]
    """The difference from the best run, by the names of the others."""
    obstacle: str
    """Why the significance of differences is not known; empty if it is."""
    is_comparable: bool
    """False if runs were evaluated on different sentences."""


def rank_runs(runs: Sequence[ComparedRun], test: SignificanceTest) -> Ranking:
    """Rank runs by BLEU, and test the difference of each from the best one."""
    scored = sorted((run for run in runs if _bleu(run) is not None), key=lambda run: -(_bleu(run) or 0.0))
    obstacle, is_comparable = _find_obstacle(runs)
    if obstacle or not scored:
        return Ranking(scored, {}, obstacle, is_comparable)
    best = scored[0].kept
    assert best is not None
    tests = {run.name: test(best, run.kept) for run in scored[1:] if run.kept is not None}
    return Ranking(scored, tests, "", True)


def _bleu(run: ComparedRun) -> float | None:
    return None if run.result is None else run.result.bleu


def _find_obstacle(runs: Sequence[ComparedRun]) -> tuple[str, bool]:
    """The reason why the differences cannot be tested, and whether BLEU can be compared at all."""
    if without := [run.name for run in runs if run.result is None]:
        return f"no evaluation of {_and(without)} is known", False
    if without := [run.name for run in runs if _bleu(run) is None]:
        return f"BLEU was not computed in {_and(without)}", False
    known = [run.kept for run in runs if run.kept is not None]
    sets = {run.history.started.data_hash for run in runs}
    sentences = {run.setting("evaluation", "sentences") for run in runs}
    same_text = len({tuple(kept.references) for kept in known}) == 1 if len(known) == len(runs) else len(sets) == 1
    if not same_text or (len(known) < len(runs) and len(sentences) > 1):
        return f"the runs were evaluated on different sentences. {SCORE_COMMAND} compares them on the same ones", False
    if without := [run.name for run in runs if run.kept is None]:
        return (
            f"the translations by the best checkpoint of {_and(without)} are not in its folder, because an older "
            f"version trained it or another machine evaluated it. {SCORE_COMMAND} translates again and tests it",
            True,
        )
    return "", True


def describe_significance(ranking: Ranking) -> str:
    """Whether the differences in BLEU are significant."""
    if ranking.obstacle:
        return f"Not known: {ranking.obstacle}."
    best, *others = ranking.runs
    sentences = count(len(best.kept.references)) if best.kept is not None else "-"
    verdicts = []
    for run in others:
        found = ranking.significance[run.name]
        verdict = "significant" if found.bleu_p_value < SIGNIFICANT else "not significant"
        verdicts.append(
            f"The difference in BLEU between {best.name} and {run.name} ({_gain(best, run)}) is {verdict}: "
            f"p = {found.bleu_p_value:.3f}, by chrF p = {found.chrf_p_value:.3f}."
        )
    return f"{' '.join(verdicts)} Paired bootstrap over the same {sentences} sentences."


def prefer(runs: Sequence[ComparedRun], ranking: Ranking) -> str:
    """The run to prefer, why, and at which cost."""
    return " ".join([_prefer(runs, ranking), *_reservations(runs)])


def _prefer(runs: Sequence[ComparedRun], ranking: Ranking) -> str:
    if not ranking.is_comparable:
        return _prefer_by_loss(runs, ranking)
    best, *others = ranking.runs
    if ranking.obstacle and not _is_tie(best, others):
        text = f"Rather {best.name}: {_against(best, others[0])} {describe_cost(best, others[0])}"
        return f"{text}; whether that difference is significant is not known."
    if ranking.obstacle:
        return _prefer_cheapest(ranking.runs, f"No difference in BLEU ({_scores(ranking.runs)})")
    significance = ranking.significance
    equal = [best, *(run for run in others if significance[run.name].bleu_p_value >= SIGNIFICANT)]
    if len(equal) == 1:
        second = others[0]
        p_value = significance[second.name].bleu_p_value
        return f"Prefer {best.name}: {_against(best, second, p_value)} {describe_cost(best, second)}."
    p_value = min(significance[run.name].bleu_p_value for run in equal[1:])
    or_more = " or more" if len(equal) > 2 else ""
    same = f"No significant difference in BLEU ({_scores(equal)}; p = {p_value:.3f}{or_more})"
    return _prefer_cheapest(equal, same)


def _is_tie(best: ComparedRun, others: Sequence[ComparedRun]) -> bool:
    return all(_bleu(run) == _bleu(best) for run in others)


def _scores(runs: Sequence[ComparedRun]) -> str:
    return ", ".join(f"{run.name} {_bleu(run):.1f}" for run in runs)


def _prefer_cheapest(equal: Sequence[ComparedRun], same: str) -> str:
    """The cheapest of runs whose translations are equally good, with the reason why they count as such."""
    by_cost, amounts, less = cheapest_first(equal)
    saving = 1 - amounts[0] / amounts[1] if amounts[1] else 0.0
    if saving < SAME_COST:
        names = _and([run.name for run, amount in zip(by_cost, amounts, strict=True) if _near(amount, amounts[0])])
        return f"{same}, nor in cost between {names}: prefer either."
    return f"{same}: prefer {by_cost[0].name}, which is {percent(saving)} {less} than {by_cost[1].name}."


def _near(amount: float, lowest: float) -> bool:
    return amount * (1 - SAME_COST) <= lowest


def _prefer_by_loss(runs: Sequence[ComparedRun], ranking: Ranking) -> str:
    results = [(run.result.nll, run) for run in runs if run.result is not None]
    if len(results) < len(runs) or len({run.history.started.data_hash for run in runs}) > 1:
        return f"No preference: {ranking.obstacle}."
    (low, best), (high, second), *_ = sorted(results, key=lambda pair: pair[0])
    text = f"Rather {best.name}: validation loss {low:.3f} against {high:.3f} of {second.name}"
    return f"{text} {describe_cost(best, second)}; BLEU cannot be compared, because {ranking.obstacle}."


def _reservations(runs: Sequence[ComparedRun]) -> list[str]:
    """What may change the preference: runs that did not reach their end."""
    unfinished = [run for run in runs if run.state not in ("finished", "stopped early")]
    return [
        f"{run.name} is {'still running, so this may change:' if run.state == 'running' else f'{run.state} at'} "
        f"step {count(run.history.step)} of {count(run.history.total_steps)}."
        for run in unfinished
    ]


def _against(run: ComparedRun, other: ComparedRun, p_value: float | None = None) -> str:
    known = "" if p_value is None else f", p = {p_value:.3f}"
    return f"BLEU {_bleu(run):.1f} against {_bleu(other):.1f} of {other.name} ({_gain(run, other)}{known})"


def _gain(run: ComparedRun, other: ComparedRun) -> str:
    return f"{(_bleu(run) or 0.0) - (_bleu(other) or 0.0):+.1f}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

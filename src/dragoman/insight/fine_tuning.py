"""Fine-tuning: what a run gained and lost since the model that it began with, and the best trade-off of both."""

from collections.abc import Iterator
from dataclasses import dataclass

from dragoman.events import CheckpointsAveraged, EvaluationDone
from dragoman.insight.answer import Answer, unknown
from dragoman.insight.run_history import RunHistory
from dragoman.insight.run_result import find_result
from dragoman.number_format import count
from dragoman.telemetry.score_gains import VALIDATION, Gain, describe_gains, net_gain, read_gains

MIN_RISE = 0.01
"""Part of the starting model's validation loss by which all later ones must be above it, to count as worse."""
MIN_RUNNING_EVALUATIONS = 3
"""Evaluations after a step before a running run counts as worse: at first, a high rate may do damage that heals."""


@dataclass(frozen=True)
class TradeOff:
    """The evaluation with the highest net gain: BLEU gained on the validation set less that lost on the others."""

    step: int
    gains: dict[str, Gain]
    net: float


def find_trade_off(history: RunHistory) -> TradeOff | None:
    """The best trade-off, which `checkpoints/best-trade-off` links to; None if there is but one set, or no gain yet."""
    found = [
        TradeOff(done.step, gains, net)
        for done in history.trained_evaluations
        if (net := net_gain(gains := read_gains(done.gains))) is not None
    ]
    if not found:
        return None
    best = max(found, key=lambda each: each.net)
    return best if best.net > 0 else TradeOff(0, {}, 0.0)


def describe_result_gains(history: RunHistory) -> str:
    """What the best checkpoint has gained and lost, as a sentence; empty if that is not known."""
    start, result = history.start_evaluation, find_result(history)
    if start is None or result is None or not history.trained_evaluations:
        return ""
    if result.step == 0:
        return f"Nothing was gained so far: the starting model is still the best ({result.scores})."
    done = _evaluation_of(history, result.checkpoint, result.step)
    place = "The average of checkpoints" if result.checkpoint == "averaged" else f"Step {count(result.step)}"
    if done.gains:
        return f"{place} {describe_gains(read_gains(done.gains))}."
    return f"{place}: {'; '.join(_loss_changes(start, done))}."


def answer_gains(history: RunHistory) -> Answer:
    """What fine-tuning brought. Asked only of runs that began with a model."""
    key, question = "gains", "What was gained and lost by fine-tuning?"
    start, trained = history.start_evaluation, history.trained_evaluations
    if start is None:
        return unknown(key, question, "the model that the run began with was not evaluated")
    if not trained or not (text := describe_result_gains(history)):
        return unknown(key, question, "there is no evaluation after a step yet")
    last = trained[-1]
    evidence = _list_scores(start, last)
    if last.gains:
        evidence.append(f"step {count(last.step)}: {describe_gains(read_gains(last.gains))}")
        evidence.append("difference in BLEU from the starting model, 95 % interval by paired bootstrap over sentences")
    trade_off = find_trade_off(history)
    if trade_off is None:
        return Answer(key, question, text, evidence)
    evidence.append(
        "the best trade-off has the highest net gain: BLEU gained on the validation set less BLEU lost on the other "
        "sets, where losses that are not significant count as none"
    )
    if trade_off.step == 0:
        text += " The best trade-off is the starting model: no checkpoint gained more than it lost."
        return Answer(key, question, text, evidence)
    gains, step = describe_gains(trade_off.gains), count(trade_off.step)
    is_described = text == f"Step {step} {gains}."
    best = "It is also the best trade-off." if is_described else f"The best trade-off is step {step}: {gains}."
    return Answer(
        key,
        question,
        f"{text} {best}",
        evidence,
        remedy="To use the best trade-off: `dragoman translate RUN/checkpoints/best-trade-off`.",
    )


def diagnose_worsened(history: RunHistory) -> Iterator[Answer]:
    """A warning if no evaluation is as good as that of the model that the run began with."""
    start, trained = history.start_evaluation, history.trained_evaluations
    needed = MIN_RUNNING_EVALUATIONS if history.ended is None else 1
    if start is None or len(trained) < needed:
        return
    scored = [done for done in trained if VALIDATION in done.gains]
    if scored:
        best = max(scored, key=lambda done: done.gains[VALIDATION]["bleu"])
        is_worse = Gain(**best.gains[VALIDATION]).is_loss
        text = f"the best later one, step {count(best.step)}, {Gain(**best.gains[VALIDATION])}"
    else:
        best = min(trained, key=lambda done: done.nll)
        is_worse = best.nll > (1 + MIN_RISE) * start.nll
        text = f"the lowest later validation loss is {best.nll:.3f}, at step {count(best.step)}"
    if is_worse:
        rate = history.setting("fine_tuning", "learning_rate")
        yield Answer(
            "worsened",
            "Did fine-tuning make the model worse?",
            f"Yes: the starting model is the best; {text}.",
            _list_scores(start, best),
            remedy=f"Lower fine_tuning.learning_rate{'' if rate is None else f' (now {rate:g})'}, check that the pairs "
            "are good translations and of the same kind as the validation set, mix other data in with `--data "
            "old@0.5`, or freeze parts of the model with fine_tuning.freeze.",
            is_warning=True,
        )


def learning_curve_command(history: RunHistory) -> str:
    """The command that says what more data would bring to a fine-tuning run; empty for others."""
    start = history.started.start
    if start is None:
        return ""
    return f"`dragoman learning-curve RECIPE --from {start['model']} --data DATA --out CURVE`"


def _evaluation_of(history: RunHistory, checkpoint: str, step: int) -> EvaluationDone | CheckpointsAveraged:
    if checkpoint == "averaged":
        return history.incidents_of(CheckpointsAveraged)[-1]
    return next(done for done in history.trained_evaluations if done.step == step)


def _loss_changes(start: EvaluationDone, done: EvaluationDone | CheckpointsAveraged) -> list[str]:
    """The change of the loss on each set, where nothing was translated."""
    before = {VALIDATION: start.nll, **{name: scores.get("nll") for name, scores in start.sets.items()}}
    after = {VALIDATION: done.nll, **{name: scores.get("nll") for name, scores in done.sets.items()}}
    return [
        f"{'validation loss' if name == VALIDATION else f'loss on {name}'} {before[name]:.3f} before, {loss:.3f} now"
        for name, loss in after.items()
        if loss is not None and before.get(name) is not None
    ]


def _list_scores(start: EvaluationDone, done: EvaluationDone) -> list[str]:
    """Loss and BLEU on each set, before the first step and at an evaluation."""
    bleus = {VALIDATION: (start.bleu, done.bleu)}
    bleus |= {name: (start.sets.get(name, {}).get("bleu"), scores.get("bleu")) for name, scores in done.sets.items()}
    texts = [
        f"{'validation set' if name == VALIDATION else name}: BLEU {before:.1f} before the first step, {after:.1f} at "
        f"step {count(done.step)}"
        for name, (before, after) in bleus.items()
        if before is not None and after is not None
    ]
    return [*texts, *_loss_changes(start, done)]

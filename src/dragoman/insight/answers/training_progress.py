"""Training progress: whether the model is fully trained or overfits, and the learning-rate schedule."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from dragoman.events import EvaluationDone
from dragoman.insight.answer import Answer, unknown
from dragoman.insight.fine_tuning import learning_curve_command
from dragoman.insight.loss_forecast import DECAYING_POLICIES, forecast_loss, warm_up_end
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import mean_of
from dragoman.insight.validation_curve import MIN_FORECAST_POINTS, MIN_POINTS, Upturn, find_upturn, is_flat
from dragoman.number_format import count, percent

MIN_GAIN = 0.01
"""Part of the validation loss that 50 % more steps must gain to be worth it."""
MIN_RISE = 0.01
"""Part of the lowest validation loss by which it must rise again to count as overfitting."""
MIN_BLEU_GAIN = 0.3
"""BLEU points that a third of the evaluations must gain, or the curve is flat."""
MIN_BLEU_RISE = 1.0
"""BLEU points that are more than noise between two evaluations."""


def answer_trained(history: RunHistory) -> Answer:
    key, question = "trained", "Is the model fully trained? What would more steps bring?"
    done, upturn = history.evaluations, _find_rise(history)
    more_data = learning_curve_command(history)
    remedy = f"Learn what more data would bring: {more_data}." if more_data else ""
    if upturn is not None:
        lowest, last = done[upturn.index], done[-1]
        text = f"Trained too long: the validation loss was lowest at step {count(lowest.step)} and has risen since."
        if (bleu_rise := _describe_bleu_rise(done, upturn.index)) is not None:
            lowest_loss = f"although the validation loss was lowest at step {count(lowest.step)}"
            flat = is_flat([evaluation.bleu or 0.0 for evaluation in done], MIN_BLEU_GAIN)
            end = f"{bleu_rise}, {lowest_loss}."
            text = f"Yes, for this model and data: {end}" if flat else f"Not yet: {end}"
        losses = (
            f"validation loss {lowest.nll:.3f} at step {count(lowest.step)}, {last.nll:.3f} at step {count(last.step)}"
        )
        return Answer(key, question, text, [losses, *_bleu_trend(done)], remedy=remedy)
    done = history.trained_evaluations
    if len(done) < MIN_FORECAST_POINTS:
        needed = f"a forecast needs {MIN_FORECAST_POINTS} evaluations after the first step"
        return unknown(key, question, f"{needed}; this run has {len(done)}")
    last, is_running = done[-1], history.ended is None and done[-1].step < history.total_steps
    forecast = forecast_loss(history, history.total_steps if is_running else round(1.5 * last.step))
    gain = last.nll - forecast.value
    rough = "" if len(done) > MIN_POINTS else f", roughly, from {len(done)} evaluations"
    evidence = [
        f"validation loss {last.nll:.3f} at step {count(last.step)}; extrapolated to {forecast.value:.3f} "
        f"({forecast.low:.3f} to {forecast.high:.3f}) at step {count(forecast.step)}{rough}",
        *_bleu_trend(done),
    ]
    decays = history.setting("schedule", "policy") in DECAYING_POLICIES
    if decays and is_running:
        evidence.append("the range includes what the decay of the learning rate to zero may bring")
    elif decays:
        evidence.append("the learning rate has decayed to zero: a longer training needs a new run")
    more = "the steps to come" if is_running else "50 % more steps"
    if (rises_until := warm_up_end(history)) is not None:
        evidence.append("the low end of the range is that of a loss that falls with the sum of the learning rates")
        rises = f"the learning rate rises until step {count(rises_until)}, and the loss may fall faster meanwhile"
        return Answer(key, question, f"Not yet: {rises}.", evidence, confidence="likely")
    if gain > MIN_GAIN * last.nll:
        text = f"Not yet: {more} would lower the validation loss by about {gain:.3f}."
        steps = count(forecast.step)
        longer = f"Start a new run of {steps} steps." if decays else f"Raise training.steps to {steps}."
        remedy = f"{longer} {remedy}".rstrip() if history.ended is not None else ""
        return Answer(key, question, text, evidence, confidence="likely", remedy=remedy)
    gained = f"{more} would lower the validation loss by only about {max(0.0, gain):.3f}"
    text = f"Yes, for this model and data: {gained}."
    return Answer(key, question, text, evidence, confidence="likely", remedy=remedy)


def _find_rise(history: RunHistory) -> Upturn | None:
    """A lasting rise of the validation loss, which may begin with the model that a fine-tuning run began with.

    A high learning rate may damage that model at first. A loss that is above it for this reason, but falls, or stays
    where it is, is no rise.
    """
    losses = [evaluation.nll for evaluation in history.evaluations]
    upturn = find_upturn(losses, MIN_RISE)
    if upturn is None or upturn.index > 0 or history.start_evaluation is None:
        return upturn
    trained = losses[1:]
    return upturn if fmean(trained[-2:]) > (1 + MIN_RISE) * min(trained[:-1]) else None


def _bleu_trend(done: Sequence[EvaluationDone]) -> list[str]:
    scores = [evaluation.bleu for evaluation in done if evaluation.bleu is not None]
    if not scores:
        return []
    trend = "no longer rises" if is_flat(scores, MIN_BLEU_GAIN) else "still rises"
    return [f"BLEU {trend}: {', '.join(f'{score:.1f}' for score in scores[-5:])} at the last evaluations"]


def answer_overfitting(history: RunHistory) -> Answer:
    key, question = "overfitting", "Is it overfitting?"
    done = history.evaluations
    if len(done) < MIN_FORECAST_POINTS:
        return unknown(key, question, f"needs {MIN_FORECAST_POINTS} evaluations; this run has {len(done)}")
    train_losses = [_mean_train_loss(history, before.step, after.step) for before, after in pairwise(done)]
    evidence = [
        f"training loss {train_losses[0]:.3f} before step {count(done[1].step)}, {train_losses[-1]:.3f} before the "
        "last evaluation",
        f"validation loss {done[0].nll:.3f} at step {count(done[0].step)}, "
        f"{done[-1].nll:.3f} at step {count(done[-1].step)}",
    ]
    if len(done) < MIN_POINTS:
        return Answer(key, question, _describe_few(done), evidence, confidence="likely")
    upturn = _find_rise(history)
    if upturn is None:
        return Answer(key, question, "No: the validation loss shows no lasting rise.", evidence)
    lowest_step = count(done[upturn.index].step)
    rise = f"the validation loss rose by {upturn.rise:.3f}"
    losses_since = train_losses[upturn.index :]
    if len(losses_since) > 1 and losses_since[-1] >= losses_since[0]:
        text = f"No: {rise} since step {lowest_step}, but so did the training loss."
        return Answer(key, question, text, evidence)
    if (bleu_rise := _describe_bleu_rise(done, upturn.index)) is not None:
        return Answer(key, question, f"Not in BLEU: {rise} since step {lowest_step}, but {bleu_rise}.", evidence)
    gentler = "" if history.started.start is None else "fewer steps, a lower fine_tuning.learning_rate, "
    return Answer(
        key,
        question,
        f"Yes, since step {lowest_step}: {rise} while the training loss fell.",
        evidence,
        remedy=f"Use the checkpoint of step {lowest_step} (best-loss). For the next run, use {gentler}more dropout or "
        "data, or set evaluation.patience.",
        is_warning=True,
    )


def _describe_few(done: Sequence[EvaluationDone]) -> str:
    """What can be said of fewer evaluations than it takes to tell a rise from noise."""
    losses, needed = [evaluation.nll for evaluation in done], f"{MIN_POINTS} evaluations are needed to be sure"
    lowest = min(range(len(losses)), key=losses.__getitem__)
    if lowest == len(losses) - 1:
        return f"Not so far: the last of {len(losses)} evaluations has the lowest validation loss; {needed}."
    return f"Perhaps: the validation loss was lowest at step {count(done[lowest].step)}; {needed}."


def _describe_bleu_rise(done: Sequence[EvaluationDone], since: int) -> str | None:
    """How much BLEU has risen since the lowest validation loss; None if it has not.

    A model that grows too sure of its words loses likelihood, but may still translate better.
    """
    before, last = done[since].bleu, done[-1].bleu
    if before is None or last is None or last - before < MIN_BLEU_RISE:
        return None
    return f"BLEU rose from {before:.1f} to {last:.1f}"


def _mean_train_loss(history: RunHistory, after_step: int, until_step: int) -> float:
    start, end = (bisect_right(history.spans, step, key=lambda span: span.step) for step in (after_step, until_step))
    spans = history.spans[start:end]
    return mean_of(spans, "nll") if spans else float("nan")


def answer_schedule(history: RunHistory) -> Answer:
    question = "What is the learning-rate schedule, and why this shape?"
    policy, rate = history.setting("schedule", "policy"), history.setting("schedule", "learning_rate")
    warmup = history.setting("schedule", "warmup_steps") or 0
    rise = f"linear warm-up to {rate:g} over {count(warmup)} steps"
    shapes = {
        "inverse_sqrt": f"linear warm-up over {count(warmup)} steps, then inverse square root decay: "
        f"{rate:g} * d_model^-0.5 * min(step^-0.5, step * {warmup}^-1.5)",
        "constant": f"{rise}, then constant",
        "linear": f"{rise}, then linear decay to zero",
        "cosine": f"{rise}, then cosine decay to zero",
        "warmup_stable_decay": f"{rise}, then constant, then decay to zero over the last "
        f"{percent(history.setting('schedule', 'decay_fraction') or 0)} of the steps",
    }
    evidence = ["warm-up, because the optimizer's estimates are inaccurate at first"]
    if policy != "constant":
        evidence.append("decay, because smaller updates late in training reach a lower loss")
    if history.spans:
        highest, last = max(history.spans, key=lambda span: span.highest_learning_rate), history.spans[-1]
        evidence.append(
            f"highest {highest.highest_learning_rate:.2e} at step {count(highest.highest_learning_rate_step)}, latest "
            f"{last.learning_rate:.2e} at step {count(last.step)}"
        )
    return Answer("schedule", question, f"{policy}: {shapes[policy]}.", evidence)

"""The eleven questions that everyone asks of a run, answered from its events alone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

from dragoman.insight.answer import Answer, not_known
from dragoman.insight.diagnoses import FEWEST_STEPS, MUCH, WAITING, exposed_data_s, find_limits, recent
from dragoman.insight.forecast import cost_of, time_left
from dragoman.insight.gradient_noise import gradient_noise
from dragoman.insight.run_history import RunHistory, mean_of
from dragoman.insight.validation_curve import FEWEST, Forecast, extrapolate, find_turn, is_flat
from dragoman.run_folder import CHECKPOINT_FILES
from dragoman.step_model import METHODS, StepConditions, predict, what_if
from dragoman.terminal import count, size, span

WORTH_GAIN = 0.01
"""Part of the validation loss that half as many steps again must bring, to be worth them."""
LEAST_RISE = 0.01
"""Part of the lowest validation loss by which it must rise again, to be overfitting."""
FLAT_BLEU = 0.3
"""BLEU points that a third of the evaluations must bring, or its curve is flat."""
NOISE_STEPS = 4000
"""Latest steps that the noise of the gradient is judged by: it grows while a model learns."""
UNMEASURED = f"that needs {FEWEST_STEPS} steps after the first few, with their parts measured"
LINKS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}


def answer_all(story: RunHistory) -> list[Answer]:
    """The eleven answers, in their order."""
    questions: tuple[Callable[[RunHistory], Answer], ...] = (
        duration, trained, overfitting, devices, network, schedule, corpus, checkpoint_files, checkpoint_size, step,
        step_and_network,
    )  # fmt: skip
    return [question(story) for question in questions]


def in_short(story: RunHistory, now_s: float) -> list[str]:
    """The two or three sentences that matter now: alarms first, then how far it is and how good."""
    answers = [*find_limits(story), *answer_all(story)]
    alarms = [f"{answer.question} {answer.verdict} {answer.remedy}" for answer in answers if answer.alarm]
    if story.state(now_s) == "silent":
        alarms.insert(0, "The run has fallen silent without an end: the same command goes on from its last checkpoint.")
    known = {answer.key: answer for answer in answers}
    calm = [known["duration"].verdict, f"{known['trained'].question} {known['trained'].verdict}"]
    return [*alarms, *calm][: max(3, len(alarms))]


def duration(story: RunHistory) -> Answer:
    question = "How long does the run take, and what does it cost?"
    left, cost = time_left(story), cost_of(story)
    if left is None:
        return not_known("duration", question, "no step has been taken yet")
    elapsed_s = story.elapsed_s
    sessions = f" in {len(story.sessions)} sessions" if len(story.sessions) > 1 else ""
    evidence = [
        f"{count(story.step)} of {count(story.total_steps)} steps, {span(sum(s.step_s for s in story.steps))} in steps",
        f"evaluations {span(sum(done.evaluation_s for done in story.evaluations))}, "
        f"standing still for checkpoints {span(sum(saved.stall_s for saved in story.checkpoints))}",
    ]
    verdict = f"It took {span(elapsed_s)}{sessions}"
    if story.ended is not None and story.ended.reason == "interrupted":
        verdict += f" until it was interrupted, at step {count(story.step)} of {count(story.total_steps)}"
    if story.ended is None:
        verdict = f"It has taken {span(elapsed_s)}{sessions}, and {span(left.total_s)} are left"
        evidence.append(
            f"left: {span(left.steps_s)} of steps, {span(left.evaluations_s)} of evaluations, "
            f"{span(left.checkpoints_s)} of checkpoints"
        )
    if cost is None:
        evidence.append("the cost is not known: set money.price_per_hour")
        return Answer("duration", question, f"{verdict}.", evidence)
    verdict += f"; it has cost {cost.words(elapsed_s)}"
    if story.ended is None:
        verdict += f" and will cost {cost.words(elapsed_s + left.total_s)} in all"
    best = max((done.bleu for done in story.evaluations if done.bleu is not None), default=None)
    if best:
        evidence.append(f"{cost.of(elapsed_s) / best:,.2f} {cost.currency} for each BLEU point")
    return Answer("duration", question, f"{verdict}.", evidence)


def trained(story: RunHistory) -> Answer:
    question = "Is the model fully trained? What would more steps bring?"
    done = story.evaluations
    turn = find_turn([each.nll for each in done], LEAST_RISE)
    if turn is not None:
        lowest = done[turn.index]
        return Answer(
            "trained",
            question,
            f"Too long: the validation loss was lowest at step {count(lowest.step)}, and more steps make it worse.",
            [f"validation loss {lowest.nll:.3f} then, {done[-1].nll:.3f} at step {count(done[-1].step)}"],
        )
    if len(done) <= FEWEST:
        return not_known("trained", question, f"a forecast needs {FEWEST + 1} evaluations, and there are {len(done)}")
    # The steep fall of the beginning says little about the end.
    tail = done[min(len(done) // 3, len(done) - FEWEST) :]
    steps, losses = [each.step for each in tail], [each.nll for each in tail]
    to_step = round(1.5 * steps[-1])
    # A curve that does not fall any more stays where it is.
    ahead = extrapolate(steps, losses, to_step) or Forecast(to_step, losses[-1], min(losses), max(losses))
    gain = losses[-1] - ahead.value
    bleus = [each.bleu for each in done if each.bleu is not None]
    evidence = [
        f"validation loss {losses[-1]:.3f} at step {count(steps[-1])}; the curve leads to {ahead.value:.3f} "
        f"({ahead.low:.3f} to {ahead.high:.3f}) at step {count(to_step)}"
    ]
    if bleus:
        words = "no longer rises" if is_flat(bleus, FLAT_BLEU) else "still rises"
        evidence.append(f"BLEU {words}: {', '.join(f'{bleu:.1f}' for bleu in bleus[-5:])} at the last evaluations")
    decays = story.setting("schedule", "policy") in {"cosine", "linear", "warmup_stable_decay"}
    if decays and story.ended is not None:
        evidence.append("the learning rate has fallen to zero: going on needs more training.steps from the beginning")
    if gain > WORTH_GAIN * losses[-1]:
        verdict = f"Not yet: half as many steps again would lower the validation loss by about {gain:.3f}."
        remedy = f"Raise training.steps to {count(to_step)}." if story.ended is not None else ""
        return Answer("trained", question, verdict, evidence, sure="likely", remedy=remedy)
    verdict = f"Yes, as far as this model and data go: half as many steps again would bring about {max(0.0, gain):.3f}."
    return Answer("trained", question, verdict, evidence, sure="likely")


def overfitting(story: RunHistory) -> Answer:
    question = "Is it overfitting?"
    done = story.evaluations
    if len(done) < FEWEST:
        return not_known("overfitting", question, f"that needs {FEWEST} evaluations, and there are {len(done)}")
    turn = find_turn([each.nll for each in done], LEAST_RISE)
    train = [_train_nll(story, before.step, each.step) for before, each in pairwise(done)]
    evidence = [
        f"training loss {train[0]:.3f} before step {count(done[1].step)}, {train[-1]:.3f} before the last evaluation",
        f"validation loss {done[0].nll:.3f} at step {count(done[0].step)}, "
        f"{done[-1].nll:.3f} at step {count(done[-1].step)}",
    ]
    if turn is None:
        return Answer("overfitting", question, "No: the validation loss has not turned.", evidence)
    lowest = done[turn.index]
    since = train[turn.index :]
    if len(since) > 1 and since[-1] >= since[0]:
        return Answer(
            "overfitting",
            question,
            f"The validation loss rose by {turn.rise:.3f} since step {count(lowest.step)}, but so did the training "
            "loss: that is no overfitting.",
            evidence,
        )
    return Answer(
        "overfitting",
        question,
        f"Yes, from step {count(lowest.step)} on: the validation loss rose by {turn.rise:.3f} while the training loss "
        "fell.",
        evidence,
        remedy=f"Use the checkpoint of step {count(lowest.step)} (best-loss); next time, more dropout or data, "
        "or evaluation.patience.",
        alarm=True,
    )


def _train_nll(story: RunHistory, after: int, until: int) -> float:
    losses = [step.nll for step in story.steps if after < step.step <= until]
    return fmean(losses) if losses else float("nan")


def devices(story: RunHistory) -> Answer:
    question = "Were the GPUs fully used?"
    steps = recent(story)
    if not steps:
        return not_known("devices", question, UNMEASURED)
    step_s = mean_of(steps, "step_s")
    computing = mean_of(steps, "compute_s") / step_s
    device = story.started.device
    evidence = [f"{device}: computing for {computing:.0%} of a step, {story.started.precision}"]
    flops = _step_flops(story)
    ceiling = sum(story.ceilings.values()) * story.started.world_size / max(1, len(story.ceilings))
    verdict = "There are none; the processors" if device == "CPU" else "They"
    verdict += f" computed for {computing:.0%} of the time"
    if flops and ceiling:
        useful = flops / step_s / ceiling
        verdict += f", and did {useful:.0%} of what large matrix products would have done"
        evidence.append(
            f"{flops / step_s / 1e12:.3g} of {ceiling / 1e12:.3g} TFLOP/s, counted without attention between tokens"
        )
    busy = [gpu["use"] for looks in story.sensed.values() for look in looks for gpu in look.gpus]
    if busy:
        evidence.append(f"the driver calls them {fmean(busy):.0%} busy; waiting for the network counts as busy there")
    waits = {
        "for the network": mean_of(steps, "communication_s") - mean_of(steps, "straggler_s"),
        "for slower workers": mean_of(steps, "straggler_s"),
        "for data": fmean(exposed_data_s(step) for step in steps),
    }
    longest = max(waits, key=lambda name: waits[name])
    if waits[longest] > WAITING * step_s:
        verdict += f"; they waited {longest} for {waits[longest] / step_s:.0%}"
    return Answer("devices", question, f"{verdict}.", evidence)


def _step_flops(story: RunHistory) -> float:
    """Arithmetic of a mean step."""
    steps, started = recent(story), story.started
    return (
        mean_of(steps, "source_tokens") * started.flops_per_source_token
        + mean_of(steps, "target_tokens") * started.flops_per_target_token
    )


def network(story: RunHistory) -> Answer:
    question = "Was the network the bottleneck?"
    if story.started.world_size == 1:
        return Answer("network", question, "No: a single worker exchanges nothing.")
    steps = recent(story)
    if not steps:
        return not_known("network", question, UNMEASURED)
    step_s, waited_s = mean_of(steps, "step_s"), _network_s(story)
    part = waited_s / step_s
    evidence = [
        f"{waited_s:.3f} s of {step_s:.3f} s a step waited for the exchange when all workers were ready, "
        f"steps {steps[0].step:,} to {steps[-1].step:,}",
        f"each worker sent {size(mean_of(steps, 'sent_bytes'))} a step",
    ]
    if rate := _carried_bits_per_s(story):
        evidence.append(f"the exchange carried {rate / 1e6:,.0f} Mbit/s while it was waited for")
    evidence += _port_evidence(story)
    if story.exchange is not None:
        evidence.append(f"exchange {story.exchange.method}: {story.exchange.reason}")
    if part < WAITING:
        return Answer("network", question, f"No: {part:.0%} of each step waited for it.", evidence)
    if part < MUCH:
        return Answer("network", question, f"In part: {part:.0%} of each step waited for it.", evidence)
    return Answer(
        "network", question, f"Yes: {part:.0%} of each step waited for it.", evidence, remedy=_remedy(story), alarm=True
    )


def _network_s(story: RunHistory) -> float:
    """How long a step waited for the exchange when all workers were ready."""
    steps = recent(story)
    return mean_of(steps, "communication_s") - mean_of(steps, "straggler_s")


def _carried_bits_per_s(story: RunHistory) -> float | None:
    """What the exchange put through a worker's port while all waited for it; None where hardly anything did."""
    waited_s, step_s = _network_s(story), mean_of(recent(story), "step_s")
    if story.started.world_size == 1 or waited_s <= 0.01 * step_s or _method(story) == "local":
        return None
    return 8 * mean_of(recent(story), "sent_bytes") / waited_s


def _method(story: RunHistory) -> str:
    if story.exchange is not None:
        return story.exchange.method
    set_method = story.setting("exchange", "method")
    return "plain" if set_method in (None, "auto") else str(set_method)


def _port_evidence(story: RunHistory) -> list[str]:
    """The busiest port of each host: how much of what it is made for it carried."""
    lines = []
    for host, looks in story.sensed.items():
        sent: dict[str, tuple[float, float | None]] = {}
        for look in looks:
            for port in look.interfaces:
                before = sent.get(port["name"], (0.0, None))[0]
                sent[port["name"]] = (before + 8 * port["sent_bytes"], port["nominal_bits_per_s"])
        if sent:
            name = max(sent, key=lambda port: sent[port][0])
            bits, nominal = sent[name]
            seconds = sum(look.span_s for look in looks)
            made_for = f" of nominal {nominal / 1e6:,.0f}" if nominal else ""
            lines.append(f"{host}: {name} sent {bits / seconds / 1e6:,.1f}{made_for} Mbit/s in the mean")
    return lines


def _remedy(story: RunHistory) -> str:
    """What would shorten the step most, by the model of a step."""
    plan = _plan(story)
    if plan is None or len(story.hosts) == 1:
        return "All workers are on one machine: start fewer of them, or use larger batches."
    now_s = predict(plan).step_s
    options = {
        "exchange.method=bf16": what_if(plan, method="bf16").step_s,
        "exchange.method=local": what_if(plan, method="local", every=16).step_s,
        "a link ten times as fast": what_if(plan, bits_per_s=10 * plan.bits_per_s).step_s,
    }
    words = [f"{name}: {step_s:.2f} s" for name, step_s in sorted(options.items(), key=lambda item: item[1])]
    return f"A step of {now_s:.2f} s would take, with {'; '.join(words)}."


def _plan(story: RunHistory) -> StepConditions | None:
    """The run as the predictor sees it; None where its link is not known."""
    steps, rate = recent(story), _carried_bits_per_s(story)
    if not steps or _method(story) not in METHODS or (story.started.world_size > 1 and rate is None):
        return None
    tokens = round(mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens"))
    compute_s = mean_of(steps, "compute_s") + mean_of(steps, "straggler_s")
    return StepConditions(
        parameters=story.started.parameters,
        step_tokens=tokens,
        tokens_per_s=(tokens / story.started.world_size / max(compute_s, 1e-9),) * story.started.world_size,
        update_s=mean_of(steps, "optimizer_s") + fmean(exposed_data_s(step) for step in steps),
        bits_per_s=rate or LINKS["1 Gbit/s"],
        method=_method(story),
    )


def schedule(story: RunHistory) -> Answer:
    question = "What is the learning-rate schedule, and why this shape?"
    policy, rate = story.setting("schedule", "policy"), story.setting("schedule", "learning_rate")
    warmup = story.setting("schedule", "warmup_steps") or 0
    shapes = {
        "inverse_sqrt": f"it grows for {count(warmup)} steps and then falls with the square root of the step: "
        f"{rate:g} * d_model^-0.5 * min(step^-0.5, step * {warmup}^-1.5)",
        "constant": f"it grows to {rate:g} for {count(warmup)} steps and stays there",
        "linear": f"it grows to {rate:g} for {count(warmup)} steps and then falls in a line to zero",
        "cosine": f"it grows to {rate:g} for {count(warmup)} steps and then falls to zero along half a cosine",
        "warmup_stable_decay": f"it grows to {rate:g} for {count(warmup)} steps, stays, and falls to zero in the last "
        f"{story.setting('schedule', 'decay_fraction') or 0:.0%} of the steps",
    }
    evidence = [
        "growth first, because the optimizer's estimates are rough in the beginning; a fall later, because small steps "
        "find lower ground"
    ]
    if story.steps:
        highest = max(story.steps, key=lambda each: each.learning_rate)
        evidence.append(
            f"highest so far: {highest.learning_rate:.2e} at step {count(highest.step)}; last "
            f"{story.steps[-1].learning_rate:.2e} at step {count(story.step)}"
        )
    return Answer("schedule", question, f"{policy}: {shapes[policy]}.", evidence)


def corpus(story: RunHistory) -> Answer:
    question = "How big is the training set?"
    data = story.data
    if data is None:
        return not_known("corpus", question, "the run was recorded by a version that did not say")
    return Answer(
        "corpus",
        question,
        f"{count(data.pairs)} pairs, {size(data.text_bytes)} of text, {count(data.source_tokens)} source and "
        f"{count(data.target_tokens)} target tokens.",
        [
            f"{data.name}, {data.languages}",
            f"before cleaning {count(data.pairs_before)} pairs, {size(data.bytes_before)} of text",
            f"vocabulary of {count(data.vocabulary)} pieces; {count(data.valid_pairs)} pairs to validate",
        ],
    )


def checkpoint_files(story: RunHistory) -> Answer:
    question = "What files is a checkpoint made of?"
    if not story.checkpoints or not story.checkpoints[-1].files:
        why = "the run was recorded by a version that did not say" if story.checkpoints else "none has been written yet"
        return not_known("checkpoint-files", question, why)
    saved = story.checkpoints[-1]
    return Answer(
        "checkpoint-files",
        question,
        f"{len(saved.files)} files; `{saved.name}` is the newest.",
        [f"{name}, {size(number)}: {CHECKPOINT_FILES.get(name, 'unknown')}" for name, number in saved.files.items()],
    )


def checkpoint_size(story: RunHistory) -> Answer:
    question = "How big is a checkpoint, and why?"
    if not story.checkpoints:
        return not_known("checkpoint-size", question, "none has been written yet")
    saved, parameters = story.checkpoints[-1], story.started.parameters
    return Answer(
        "checkpoint-size",
        question,
        f"{size(saved.size_bytes)}: {saved.size_bytes / parameters:.1f} bytes for each of {parameters / 1e6:.1f} M "
        "parameters.",
        [
            f"weights take 4 bytes a parameter, {size(4 * parameters)}; the rest is mostly the optimizer's state",
            f"writing took {span(saved.write_s)} in the background; training stood still for {saved.stall_s:.3f} s",
        ],
    )


def step(story: RunHistory) -> Answer:
    question = "What is a step, and how long does one take?"
    steps = story.steady
    if not steps:
        return not_known("step", question, "none has been taken yet")
    step_s = mean_of(steps, "step_s")
    parts = {
        "waiting for data": fmean(exposed_data_s(each) for each in steps),
        "computing": mean_of(steps, "compute_s"),
        "waiting for slower workers": mean_of(steps, "straggler_s"),
        "the network": mean_of(steps, "communication_s") - mean_of(steps, "straggler_s"),
        "the update": mean_of(steps, "optimizer_s"),
    }
    tokens = mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens")
    split = "; ".join(f"{name} {spent:.3f} s ({spent / step_s:.0%})" for name, spent in parts.items())
    evidence = [
        split if recent(story) else "its parts were not measured",
        f"median {median(each.step_s for each in steps):.3f} s over {count(len(steps))} steps, the first of each "
        "session left out",
    ]
    if (noise := gradient_noise(steps[-NOISE_STEPS:])) is not None:
        evidence.append(noise.words)
    return Answer(
        "step",
        question,
        f"One update of the weights from {count(mean_of(steps, 'pairs'))} pairs; it takes {step_s:.3f} s, "
        f"{count(tokens / step_s)} tokens a second.",
        evidence,
    )


def step_and_network(story: RunHistory) -> Answer:
    question = "How does step time relate to the network?"
    plan = _plan(story)
    if plan is None:
        why = "the exchange is too short, or too well hidden behind the steps, to tell what the link carries"
        return not_known("step-and-network", question, why)
    if plan.workers == 1:
        plan = replace(plan, tokens_per_s=plan.tokens_per_s * 2)
        verdict = "Not at all, with one worker; with two machines like this one a step would take as below."
    else:
        now = predict(plan)
        verdict = (
            f"{now.exchange_s:.2f} s of a step of {now.step_s:.2f} s follow the link: half the bandwidth would make it "
            f"{what_if(plan, bits_per_s=plan.bits_per_s / 2).step_s:.2f} s."
        )
    evidence = []
    for name, bits_per_s in LINKS.items():
        times = ", ".join(
            f"{method} {what_if(plan, bits_per_s=bits_per_s, method=method, every=16).step_s:.2f} s"
            for method in METHODS
        )
        evidence.append(f"at {name}: {times}")
    return Answer("step-and-network", question, verdict, evidence, sure="likely")

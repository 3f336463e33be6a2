"""Network: whether it limits the run, and step time on other links."""

from collections.abc import Sequence
from dataclasses import replace

from dragoman.events import HostSampled
from dragoman.insight.answer import Answer, unknown
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import (
    BOTTLENECK_WAIT,
    NOT_MEASURED,
    NOTICEABLE_WAIT,
    mean_of,
    mean_part_s,
    measured_steps,
)
from dragoman.number_format import percent, size
from dragoman.step_model import ExchangeMethod, RingLink, StepConditions, TcpLink, exchange_method, predict

MIN_EXPOSED = 0.01
"""Part of a step that communication must take to tell the bandwidth of the link."""
LINKS_BITS_PER_S = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}


def answer_bottleneck(history: RunHistory) -> Answer:
    key, question = "network", "Was the network the bottleneck?"
    if history.started.world_size == 1:
        return Answer(key, question, "No: a single worker does not communicate.")
    steps = measured_steps(history)
    if not steps:
        return unknown(key, question, NOT_MEASURED)
    step_s, communication_s = mean_of(steps, "step_s"), mean_part_s(steps, "communication")
    evidence = [
        f"{communication_s:.3f} s of a {step_s:.3f} s step spent in the exchange with all workers ready, "
        f"steps {steps[0].step:,} to {steps[-1].step:,}",
        f"each worker sent {size(mean_of(steps, 'sent_bytes'))} per step",
    ]
    if rate := _exchange_bits_per_s(history):
        evidence.append(f"the exchange carried {rate / 1e6:,.0f} Mbit/s while workers waited for it")
    evidence += [line for host, readings in history.host_readings.items() for line in _busiest_link(host, readings)]
    if history.exchange is not None:
        evidence.append(f"exchange method {history.exchange.method}: {history.exchange.reason}")
    share, overlapped = communication_s / step_s, mean_of(steps, "overlapped_s") / step_s
    took = f"communication took {percent(share)} of step time"
    if overlapped > MIN_EXPOSED:
        took += f", and {percent(overlapped)} more was overlapped with computing"
    if share < NOTICEABLE_WAIT:
        return Answer(key, question, f"No: {took}.", evidence)
    if share < BOTTLENECK_WAIT:
        return Answer(key, question, f"Partly: {took}.", evidence)
    return Answer(key, question, f"Yes: {took}.", evidence, remedy=_faster_exchange(history), is_warning=True)


def answer_link_effect(history: RunHistory) -> Answer:
    key, question = "step-and-network", "How does step time relate to the network?"
    conditions = _step_conditions(history)
    if conditions is None:
        reason = "communication is too short, or too well overlapped, to tell the bandwidth of the link"
        return unknown(key, question, reason)
    if conditions.workers == 1:
        conditions = replace(conditions, tokens_per_s=conditions.tokens_per_s * 2)
        text = "Not at all with one worker. The evidence predicts the step time of two machines like this one."
    else:
        now, halved = predict(conditions), predict(conditions.with_bandwidth(conditions.link.bits_per_s / 2))
        text = (
            f"Communication takes {now.exchange_s:.2f} s of a {now.step_s:.2f} s step; "
            f"with half the bandwidth the step would take {halved.step_s:.2f} s."
        )
    evidence = []
    for link, bits_per_s in LINKS_BITS_PER_S.items():
        on_link = replace(conditions, link=TcpLink(bits_per_s))
        times = ", ".join(
            f"{method} {predict(on_link.with_method(method)).step_s:.2f} s" for method in conditions.predictable
        )
        evidence.append(f"at {link}: {times}")
    return Answer(key, question, text, evidence, confidence="likely")


def _exchange_bits_per_s(history: RunHistory) -> float | None:
    """Bandwidth that the exchange used while all workers waited for it; None if they hardly waited."""
    steps = measured_steps(history)
    communication_s = mean_part_s(steps, "communication")
    if history.started.world_size == 1 or communication_s <= MIN_EXPOSED * mean_of(steps, "step_s"):
        return None
    if _exchange_method(history).name == "local":
        return None  # It runs behind the steps.
    return 8 * mean_of(steps, "sent_bytes") / communication_s


def _exchange_method(history: RunHistory) -> ExchangeMethod:
    if (chosen := history.exchange) is not None:
        return ExchangeMethod(chosen.method, chosen.every, chosen.wire_format, overlap=chosen.overlap)
    name = history.setting("exchange", "method")
    return exchange_method("plain" if name in (None, "auto") else str(name))


def _busiest_link(host: str, readings: Sequence[HostSampled]) -> list[str]:
    """Traffic of the network interface of a host that sent most, against its nominal speed."""
    sent_bits: dict[str, float] = {}
    nominal: dict[str, float | None] = {}
    for reading in readings:
        for interface in reading.interfaces:
            name = interface["name"]
            sent_bits[name] = sent_bits.get(name, 0.0) + 8 * interface["sent_bytes"]
            nominal[name] = interface["nominal_bits_per_s"]
    if not sent_bits:
        return []
    busiest = max(sent_bits, key=lambda name: sent_bits[name])
    rate = sent_bits[busiest] / sum(reading.span_s for reading in readings)
    speed = nominal[busiest]
    limit = f"{speed / 1e6:,.0f} Mbit/s nominal" if speed else "link speed unknown"
    return [f"{host}: {busiest} sent {rate / 1e6:,.1f} Mbit/s on average, {limit}"]


def _faster_exchange(history: RunHistory) -> str:
    """Changes that would shorten the step, by the step model, best first."""
    conditions = _step_conditions(history)
    if len(history.hosts) == 1:
        return "All workers run on one machine: start fewer workers, or use larger batches."
    if conditions is None:
        return "Use a faster link, or synchronise less often with exchange.method=local and a larger exchange.every."
    options = {
        "exchange.method=bf16": predict(conditions.with_method("bf16")).step_s,
        "exchange.method=auto": predict(conditions.with_method("auto")).step_s,
        "a link ten times as fast": predict(conditions.with_bandwidth(10 * conditions.link.bits_per_s)).step_s,
    }
    (best, best_s), *others = sorted(options.items(), key=lambda option: option[1])
    times = "; ".join(f"{step_s:.2f} s with {change}" for change, step_s in others)
    return f"Use {best}: predicted step time {best_s:.2f} s instead of {predict(conditions).step_s:.2f} s; {times}."


def _step_conditions(history: RunHistory) -> StepConditions | None:
    """The run as input of the step model; None if the bandwidth of its link is not known."""
    steps, link = measured_steps(history), _ring_link(history)
    world, method = history.started.world_size, _exchange_method(history)
    if not steps or method.name == "powersgd" or (world > 1 and link is None):
        return None
    tokens = round(mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens"))
    compute_s = mean_part_s(steps, "compute") + mean_part_s(steps, "straggler wait")
    fixed_s = sum(mean_part_s(steps, part) for part in ("optimizer update", "data wait", "host-bound", "compile"))
    return StepConditions(
        parameters=history.started.parameters,
        step_tokens=tokens,
        tokens_per_s=(tokens / world / max(compute_s, 1e-9),) * world,
        update_s=fixed_s,
        link=link or TcpLink(LINKS_BITS_PER_S["1 Gbit/s"]),
        method=method,
    )


def _ring_link(history: RunHistory) -> RingLink | None:
    """The link as its use or, behind overlapped steps, a measurement of `auto` shows it; None if neither does."""
    if (rate := _exchange_bits_per_s(history)) is not None:
        return RingLink(rate)
    chosen = history.exchange
    return RingLink(chosen.bits_per_s, chosen.latency_s) if chosen is not None and chosen.bits_per_s else None

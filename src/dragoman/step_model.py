"""Time of a training step, from what the workers compute and what the link between them carries.

One model for three uses: `exchange.method=auto` chooses a method with it, `dragoman doctor` predicts a run before it
starts, and `dragoman report` predicts the same run on other links. Only the standard library is imported.

A step computes, updates the weights, and exchanges gradients or weights. For a message of `m` bytes each of `n` workers
sends `2 (n - 1) / n * m` bytes: in a ring all-reduce, in a reduce-scatter and an all-gather of quantized values, and
where two workers send each other all of theirs.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

AUTO = "auto"
METHODS = ("plain", "bf16", "powersgd", "local")
"""Values of `exchange.method`, without `auto`."""
DEFAULT_INTERVAL = 16
"""Steps between synchronisations of the local method, as `exchange.every` has it by default."""
DEFAULT_RANK = 8
"""Of PowerSGD, as `exchange.powersgd_rank` has it by default."""
RING_USE = 0.9
"""Part of a TCP connection's rate that a ring all-reduce reaches: gloo reached 0.88 to 0.92 at 50 and 100 Mbit/s."""
KEEP_RANGE = 0.15
"""Part by which the expected loss increase of local steps in use may exceed that of the best ones, and by which the
link may be slower than they need: its measurements vary by some percent."""
MAX_EXPOSED = 0.10
"""Largest part of a step that `auto` lets methods without overlap spend on communication."""
OVERLAP_MARGIN = 1.3
"""How many times its expected duration an overlapped exchange may take before the steps wait for it."""
LATENCY_SHARE = 0.2
"""Largest part of the steps of overlap that `auto` lets the latency of the link take. It is less than the margin."""
PART_LATENCY_S = 0.006
"""Time of an overlapped part of an exchange beside that of its messages: quantization, copies, and waiting for the
device. Measured on an H200, next to the steps of transformer-base."""
MIN_INTERVAL, MAX_INTERVAL = 2, 512
"""Range of intervals that `auto` chooses from."""
LOSS_INCREASE = {
    "int8": {1: 0.0, 32: 0.026, 128: 0.046, 512: 0.072},
    "int4": {1: 0.0, 32: 0.026, 128: 0.048, 512: 0.078},
    "int2": {1: 0.002, 32: 0.028, 128: 0.059, 512: 0.105},
}
"""Part by which the validation loss is higher than that of synchronous training on the same tokens, by wire format and
interval. Measured with `benchmarks.exchange_quality`, with two workers and a tiny model (docs/benchmarks.md): it gives
the order of the settings. For intervals of 1 only rounding counts, as much as at 32."""
LOSS_INCREASE_BY_PARTS = {
    "int8": {1: 0.0, 32: 0.026, 128: 0.048, 512: 0.072},
    "int4": {1: 0.0, 32: 0.026, 128: 0.050, 512: 0.082},
    "int2": {1: 0.006, 32: 0.033, 128: 0.070, 512: 0.131},
}
"""The same, where each worker averages a part of the values, as three and more do: the mean is rounded, too. Measured
with two workers that exchanged in this way. On an H200, `modern` lost 2.0 % where this table has 4.7 % (54, int2) and
4.7 % (108, int4)."""

WIRE_BITS = {"fp32": 32, "bf16": 16, "int8": 8, "int4": 4, "int2": 2}
"""Bits of a value in a message, by wire format. The scales of quantized blocks, 0.06 bits, are not counted."""


def sent_bytes(values: float, wire_format: str, workers: int) -> float:
    """Bytes that each worker sends until all have the mean of their values."""
    return 2 * (workers - 1) / workers * values * WIRE_BITS[wire_format] / 8


@dataclass(frozen=True)
class RingLink:
    """The network as collective operations see it, measured with all-reduces."""

    bits_per_s: float
    """Sent by each worker during a large all-reduce."""
    latency_s: float = 0.0
    """Time of an empty all-reduce over all workers."""

    def ring(self, workers: int) -> "RingLink":  # noqa: ARG002 (as of a TcpLink)
        return self


@dataclass(frozen=True)
class TcpLink:
    """One direction between two machines, measured with plain TCP messages."""

    bits_per_s: float
    round_trip_s: float = 0.0

    def ring(self, workers: int) -> RingLink:
        """The link as a ring all-reduce uses it. Each further worker adds two messages to its latency."""
        return RingLink(RING_USE * self.bits_per_s, self.round_trip_s * (workers - 1))


Link = RingLink | TcpLink


@dataclass(frozen=True)
class ExchangeMethod:
    """A way to bring workers' updates together."""

    name: str = "plain"
    interval: int = 1
    """Steps between synchronisations of the same parameter."""
    wire_format: str = "fp32"
    overlap: int = 0
    """Steps that compute while one part of the weights is averaged; 0 waits until all of them are."""
    rank: int = 0
    """Of the matrices that PowerSGD sends."""

    @property
    def bits_per_step(self) -> float:
        """Bits sent per step for each parameter, but for a factor that all methods share. Not for PowerSGD."""
        return WIRE_BITS[self.wire_format] / self.interval


def exchange_method(
    name: str,
    *,
    interval: int = DEFAULT_INTERVAL,
    wire_format: str = "bf16",
    overlap: int = 1,
    rank: int = DEFAULT_RANK,
) -> ExchangeMethod:
    """A method by its name in the settings."""
    if name == "local":
        return ExchangeMethod(name, interval, wire_format, overlap)
    if name == "powersgd":
        return ExchangeMethod(name, rank=rank)
    return ExchangeMethod(name, wire_format="bf16" if name == "bf16" else "fp32")


PLAIN, BF16 = exchange_method("plain"), exchange_method("bf16")


@dataclass(frozen=True)
class ExchangeConditions:
    """All that the duration of an exchange depends on."""

    link: RingLink
    parameters: int
    workers: int
    matrices: tuple[tuple[int, int], ...] = ()
    """Shapes of the weight matrices. Only PowerSGD needs them."""

    def exchange_s(self, method: ExchangeMethod) -> float:
        """Time to bring all parameters together at once."""
        if self.workers == 1:
            return 0.0
        return self.latency_s(method) + self.transfer_s(method)

    def exposed_s(self, method: ExchangeMethod, behind_s: float) -> float:
        """Time that a step waits for the exchange, if its other parts take `behind_s`."""
        if self.workers == 1:
            return 0.0
        if not method.overlap:
            return self.exchange_s(method) / method.interval
        parts = math.ceil(method.interval / method.overlap)
        part_s = self.latency_s(method) + self.transfer_s(method) / parts
        return max(0.0, part_s / method.overlap - behind_s)

    def hides(self, method: ExchangeMethod, behind_s: float) -> bool:
        """Whether steps hardly wait for an overlapped exchange, even if it takes somewhat longer than expected."""
        return (
            OVERLAP_MARGIN * self.transfer_s(method) <= method.interval * behind_s
            and self.latency_s(method) <= LATENCY_SHARE * method.overlap * behind_s
        )

    def hiding_bits_per_s(self, method: ExchangeMethod, behind_s: float) -> float:
        """Bandwidth at which a local method would hide the exchange; infinite if the latency is too long for it."""
        if self.latency_s(method) > LATENCY_SHARE * method.overlap * behind_s:
            return math.inf
        transfer_bits = self.transfer_s(method) * self.link.bits_per_s
        return transfer_bits / (method.interval * behind_s / OVERLAP_MARGIN)

    def latency_s(self, method: ExchangeMethod) -> float:
        """Time of the messages of an exchange, or of an overlapped part of it, if they were empty."""
        # A reduce-scatter and an all-gather; two workers send each other their values at once.
        in_parts = WIRE_BITS[method.wire_format] < WIRE_BITS["bf16"] and self.workers > 2
        messages = 2 if in_parts or method.name == "powersgd" else 1
        return messages * self.link.latency_s + (PART_LATENCY_S if method.overlap else 0.0)

    def transfer_s(self, method: ExchangeMethod) -> float:
        """Time in which the link carries all parameters, without its latency."""
        values = self._powersgd_values(method.rank) if method.name == "powersgd" else self.parameters
        return 8 * sent_bytes(values, method.wire_format, self.workers) / self.link.bits_per_s

    def _powersgd_values(self, rank: int) -> int:
        """Two factors for each matrix that they make smaller; everything else as it is."""
        if not self.matrices:
            raise ValueError("PowerSGD cannot be predicted without the shapes of the matrices")
        saved = sum(max(0, rows * columns - rank * (rows + columns)) for rows, columns in self.matrices)
        return self.parameters - saved


@dataclass(frozen=True)
class StepConditions:
    """A recipe on given machines and links."""

    parameters: int
    step_tokens: float
    """Source and target tokens of a global batch, on average."""
    tokens_per_s: tuple[float, ...]
    """Speed of each worker, forward and backward."""
    update_s: float
    """Part of a step that more workers do not shorten: the optimizer, and waiting for data."""
    link: Link
    method: ExchangeMethod = PLAIN
    pass_s: float = 0.0
    """Fixed cost of forward and backward, however few tokens a worker has."""
    copy_s: float = 0.0
    """Copying all gradients into a message and back."""
    compress_s: float = 0.0
    """Computing PowerSGD's factors and multiplying them."""
    balanced: bool = True
    """Whether each worker's share of the batch follows its speed; otherwise shares are equal."""
    matrices: tuple[tuple[int, int], ...] = ()
    """Shapes of the weight matrices. Only PowerSGD needs them."""
    machines: int = 0
    """Number of machines; 0 is one per worker."""

    @property
    def workers(self) -> int:
        return len(self.tokens_per_s)

    @property
    def single_machine(self) -> bool:
        """Whether no message crosses a link: workers of one machine exchange through its memory."""
        return self.workers == 1 or self.machines == 1

    @property
    def compute_s(self) -> float:
        """Forward and backward of a step, on the slowest worker."""
        if self.balanced:
            return self.pass_s + self.step_tokens / sum(self.tokens_per_s)
        return self.pass_s + self.step_tokens / self.workers / min(self.tokens_per_s)

    @property
    def exchange(self) -> ExchangeConditions:
        return ExchangeConditions(self.link.ring(self.workers), self.parameters, self.workers, self.matrices)

    @property
    def predictable(self) -> tuple[str, ...]:
        """Names of the methods whose messages are known."""
        return (*METHODS, AUTO) if self.matrices else tuple(name for name in (*METHODS, AUTO) if name != "powersgd")

    def with_method(self, name: str) -> "StepConditions":
        """The same with another method, at its default interval, wire format and rank; `auto` chooses them."""
        if name == AUTO:
            return replace(self, method=self.chosen().method)
        return replace(self, method=exchange_method(name))

    def chosen(self) -> "ExchangeChoice":
        """The method that `auto` chooses under these conditions."""
        if self.single_machine:
            return ExchangeChoice(PLAIN, "all workers are on one machine")
        return choose(self.exchange, self.compute_s)

    def with_bandwidth(self, bits_per_s: float) -> "StepConditions":
        return replace(self, link=replace(self.link, bits_per_s=bits_per_s))

    def with_machines(self, machines: int) -> "StepConditions":
        """More or fewer machines with as many workers each. Added ones are as fast as the slowest."""
        workers = max(1, round(machines * self.workers / (self.machines or self.workers)))
        speeds = sorted(self.tokens_per_s, reverse=True)
        speeds += [speeds[-1]] * (workers - len(speeds))
        return replace(self, tokens_per_s=tuple(speeds[:workers]), machines=machines)


@dataclass(frozen=True)
class StepPrediction:
    """Parts of a step, in seconds."""

    compute_s: float
    update_s: float
    exchange_s: float
    """Exposed communication, including the copies into and out of messages."""

    @property
    def step_s(self) -> float:
        return self.compute_s + self.update_s + self.exchange_s


def predict(conditions: StepConditions) -> StepPrediction:
    """Time of one step, averaged over the interval of the method."""
    method, wait_s = conditions.method, 0.0
    if not conditions.single_machine:
        wait_s += conditions.exchange.exposed_s(method, conditions.compute_s + conditions.update_s)
    if conditions.workers > 1:
        work_s = conditions.copy_s + (conditions.compress_s if method.name == "powersgd" else 0.0)
        wait_s += work_s / method.interval
    return StepPrediction(conditions.compute_s, conditions.update_s, wait_s)


@dataclass(frozen=True)
class ExchangeChoice:
    """A method, with the reason in a sentence."""

    method: ExchangeMethod
    reason: str = ""
    review_every: int = 0
    """Steps after which to choose again; 0 is never."""
    link: RingLink | None = None
    """The measured link, if it was measured."""


def expected_loss_increase(method: ExchangeMethod, workers: int) -> float:
    """Validation loss relative to that of synchronous training on the same tokens, less 1; as it was measured."""
    if method.name != "local":
        return 0.0
    table = _loss_increases(workers)
    measured = sorted(table.get(method.wire_format, table["int8"]).items())
    below = [(interval, loss) for interval, loss in measured if interval <= method.interval][-1]
    above = next(((interval, loss) for interval, loss in measured if interval > method.interval), None)
    if above is None:
        return below[1]
    part = math.log(method.interval / below[0]) / math.log(above[0] / below[0])
    return below[1] + part * (above[1] - below[1])


def _loss_increases(workers: int) -> Mapping[str, Mapping[int, float]]:
    return LOSS_INCREASE if workers <= 2 else LOSS_INCREASE_BY_PARTS


def local_settings(workers: int) -> Iterator[ExchangeMethod]:
    """Intervals and wire formats worth choosing, without overlap, from the least lossy one on.

    Each sends less than the one before. Settings that send no less than another one and lose as much are left out.
    """
    settings = [
        ExchangeMethod("local", interval, wire_format)
        for wire_format in _loss_increases(workers)
        for interval in range(MIN_INTERVAL, MAX_INTERVAL + 1)
    ]
    sent = math.inf
    for method in sorted(settings, key=lambda each: (expected_loss_increase(each, workers), each.bits_per_step)):
        if method.bits_per_step < sent:
            sent = method.bits_per_step
            yield method


def choose(
    conditions: ExchangeConditions, compute_s: float, *, present: ExchangeMethod | None = None
) -> ExchangeChoice:
    """The least lossy method that hides the link: exposed communication stays under a tenth of the step.

    `compute_s` is the time of a step without exchange, on the slowest worker. Local steps that are in use (`present`)
    stay as they are while they are about as good: another interval every minute would only cost.
    """
    plain_s, bf16_s = conditions.exchange_s(PLAIN), conditions.exchange_s(BF16)
    measured = (
        f"the link carries {_rounded(conditions.link.bits_per_s / 1e6)} Mbit/s, a step computes for "
        f"{_rounded(compute_s)} s, and a plain exchange takes {_rounded(plain_s)} s"
    )
    if plain_s <= MAX_EXPOSED * (compute_s + plain_s):
        return ExchangeChoice(PLAIN, f"{measured}: no compression is needed")
    if bf16_s <= MAX_EXPOSED * (compute_s + bf16_s):
        return ExchangeChoice(BF16, f"{measured}: in bfloat16 it takes {_rounded(bf16_s)} s, under a tenth of the step")
    candidates = [_overlapped(method, conditions, compute_s) for method in local_settings(conditions.workers)]
    method = next((each for each in candidates if conditions.hides(each, compute_s)), candidates[-1])
    is_hidden = conditions.hides(method, compute_s)
    if is_hidden and present is not None and _is_about_as_good(present, method, conditions, compute_s):
        method = present
    exposed_s, exchange_s = conditions.exposed_s(method, compute_s), conditions.exchange_s(method)
    loss_increase = expected_loss_increase(method, conditions.workers)
    expected = (
        f"weights are synchronised every {method.interval} steps in {method.wire_format}"
        f"{f', each part during {method.overlap} of them' if method.overlap > 1 else ''}; expect steps to wait for "
        f"{exposed_s / (compute_s + exposed_s):.0%} of their time, and a loss {loss_increase:.1%} "
        "higher than that of synchronous training, as a tiny model on two workers had (one of 61 million parameters "
        f"had less than half of that); each checkpoint waits for {_rounded(exchange_s)} s"
    )
    if is_hidden:
        return ExchangeChoice(method, f"{measured}: {expected}")
    return ExchangeChoice(method, f"{measured}: {expected}. {describe_unhidden(conditions, method, compute_s)}")


def _is_about_as_good(
    present: ExchangeMethod, best: ExchangeMethod, conditions: ExchangeConditions, compute_s: float
) -> bool:
    if present.name != "local":
        return False
    needed = replace(conditions.link, bits_per_s=(1 + KEEP_RANGE) * conditions.link.bits_per_s)
    present_loss, best_loss = (expected_loss_increase(each, conditions.workers) for each in (present, best))
    is_hidden = replace(conditions, link=needed).hides(present, compute_s)
    return is_hidden and present_loss <= (1 + KEEP_RANGE) * best_loss


def describe_unhidden(conditions: ExchangeConditions, method: ExchangeMethod, compute_s: float) -> str:
    """A sentence on a link that not even the strongest setting hides, and on one that it would hide."""
    exposed_s = conditions.exposed_s(method, compute_s)
    needed_mbit = conditions.hiding_bits_per_s(method, compute_s) / 1e6
    needed = f"{_rounded(needed_mbit)} Mbit/s" if math.isfinite(needed_mbit) else "a shorter round trip"
    return f"No setting hides this link: each step still waits for {_rounded(exposed_s)} s; hiding it takes {needed}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _overlapped(method: ExchangeMethod, conditions: ExchangeConditions, compute_s: float) -> ExchangeMethod:
    """The method with as many steps of overlap as the latency of the link needs."""
    steps = math.ceil(conditions.latency_s(replace(method, overlap=1)) / (LATENCY_SHARE * compute_s))
    return replace(method, overlap=min(steps, method.interval))

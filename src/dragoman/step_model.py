"""How long a step takes, from what the machines and the link between them can do. Small enough to check by hand.

A step computes, updates, and exchanges. A ring sends each worker's part of the message twice, but for its own: of
`n` workers each puts `2 (n - 1) / n` times the message on the wire.
"""

from dataclasses import dataclass, replace

BYTES = {"plain": 4.0, "bf16": 2.0, "local": 2.0}
"""On the wire for each parameter; the local method sends its weights in bfloat16."""
METHODS = tuple(BYTES)
RING_USE = 0.9
"""Part of a port's bandwidth that a ring fills: 0.88 to 0.92 was seen of gloo on ports of 50 and 100 Mbit/s."""


@dataclass(frozen=True)
class StepConditions:
    """Machines, a link and a way to exchange gradients."""

    parameters: int
    step_tokens: int
    """Source and target tokens of a global batch."""
    tokens_per_s: tuple[float, ...]
    """How fast each worker computes."""
    update_s: float
    """Time of a step that more workers do not shorten: the optimizer, and waiting for data."""
    bits_per_s: float
    """What a worker's port carries in one direction."""
    latency_s: float = 0.0
    pass_s: float = 0.0
    """What computing takes besides, however few a worker's tokens are."""
    copy_s: float = 0.0
    """Putting all gradients into a message, and taking them out again."""
    method: str = "plain"
    every: int = 1
    """Steps between meetings of the local method."""
    balanced: bool = True
    """Whether shares follow speeds; else each worker takes as much."""

    @property
    def workers(self) -> int:
        return len(self.tokens_per_s)

    @property
    def compute_s(self) -> float:
        """Of a step, on the worker that takes longest."""
        if self.balanced:
            return self.pass_s + self.step_tokens / sum(self.tokens_per_s)
        return self.pass_s + self.step_tokens / self.workers / min(self.tokens_per_s)


@dataclass(frozen=True)
class Prediction:
    """A step's parts, in seconds."""

    compute_s: float
    update_s: float
    exchange_s: float
    """As it holds up the step, messages put together and taken apart: what happens behind the computing does not."""

    @property
    def step_s(self) -> float:
        return self.compute_s + self.update_s + self.exchange_s


def predict(plan: StepConditions) -> Prediction:
    """The time of one step."""
    wire_s, copy_s = wire_time(plan), plan.copy_s if plan.workers > 1 else 0.0
    if plan.method == "local":
        # The exchange runs behind the steps until the next meeting, and only what exceeds them is waited for.
        behind_s = plan.every * (plan.compute_s + plan.update_s)
        wire_s, copy_s = max(0.0, wire_s - behind_s) / plan.every, copy_s / plan.every
    return Prediction(plan.compute_s, plan.update_s, wire_s + copy_s)


def wire_time(plan: StepConditions) -> float:
    """How long one exchange takes."""
    if plan.workers == 1:
        return 0.0
    sent_bytes = 2 * (plan.workers - 1) / plan.workers * plan.parameters * BYTES[plan.method]
    return plan.latency_s + 8 * sent_bytes / (RING_USE * plan.bits_per_s)


def what_if(plan: StepConditions, **changes: object) -> Prediction:
    """The same with some of it changed."""
    return predict(replace(plan, **changes))  # type: ignore[arg-type]

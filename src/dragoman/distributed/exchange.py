"""How workers' gradients become one update: the only place where they cross from machine to machine.

| method | on the wire, each step | what it loses |
|---|---|---|
| `plain` | the gradient in float32 | nothing |
| `bf16` | the gradient in bfloat16 | bits that a gradient's noise exceeds by far |
| `powersgd` | two thin matrices for each matrix | what they cannot express comes with a later step |
| `local` | every few steps what the weights moved, while training goes on | workers drift apart in between |

Each worker's gradient is already divided by the tokens of the whole batch, so that sums are exact whatever the shares.
Beside the gradient travel a few numbers (`words`): sums of losses, tokens, who wants to stop, how long each computed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster

TOKENS, STOPS, POSTS, SPREAD, TIMES = 2, 3, 4, 5, 6
"""Places among the words, after the sums of the two losses: tokens, wishes to stop, who has news to post, the spread of
the workers' gradients, and from there on times by rank: how long each computed, and then how long each took until it
was ready to exchange."""
BLOCK = 1024
"""Elements that share a scale in 8 bits."""
MOMENTUM_STEPS = 19
"""Steps whose gradients a mean that decays by 0.9 is as good as, in its noise."""
REMEMBERED = 0.9
"""Of an earlier estimate, at each meeting."""
SEED = 20_190_531
"""Of PowerSGD's first guess, which must be the same everywhere."""


def words_size(world: int) -> int:
    """How many words travel in a world of so many workers."""
    return TIMES + 2 * world


class Exchange(Protocol):
    """What the training loop asks of a method."""

    def gradients(self, words: Tensor, tokens: int) -> Tensor:
        """Make every parameter's gradient the one to update with, and give the words that belong to it.

        `tokens` are those of the whole batch, by which the gradients have been divided.
        """
        ...

    def settle(self, *, flush: bool) -> Tensor | None:
        """After the update: the words of all workers summed, where they have met in this step.

        `flush`: the weights must be the same on all workers now, because they are to be judged or saved.
        """
        ...

    @property
    def common(self) -> bool:
        """Whether the weights are the same on all workers now."""
        ...

    @property
    def rate_factor(self) -> float:
        """What the rate of this worker's updates is to be multiplied by."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


class Synchronous:
    """One exchange in each step: all workers make the same update."""

    def __init__(self, cluster: Cluster, parameters: Sequence[nn.Parameter], wire: "Wire") -> None:
        self._cluster = cluster
        self._parameters = list(parameters)
        self._wire = wire
        self._words: Tensor | None = None

    @torch.no_grad()
    def gradients(self, words: Tensor, tokens: int) -> Tensor:  # noqa: ARG002 (a sum needs no rescaling)
        gradients = [_gradient(parameter) for parameter in self._parameters]
        self._words = self._wire(self._cluster, words, gradients) if self._cluster.world > 1 else words
        return self._words

    def settle(self, *, flush: bool) -> Tensor | None:  # noqa: ARG002 (the weights are always the same)
        words, self._words = self._words, None
        return words

    @property
    def common(self) -> bool:
        return True

    @property
    def rate_factor(self) -> float:
        return 1.0

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        pass


Wire = Callable[[Cluster, Tensor, Sequence[Tensor]], Tensor]
"""Replaces gradients by their sums over all workers, and gives the sums of the words."""


def send_plain(cluster: Cluster, words: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Everything in one message, as it is."""
    message = cluster.sum(torch.cat([words, put_together(gradients)]))
    take_out(message[len(words) :], gradients)
    return message[: len(words)]


def send_bf16(cluster: Cluster, words: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Half the bytes. The words keep their bits: a count in bfloat16 is inexact past 256."""
    message = put_together(gradients).bfloat16()
    finish = cluster.start_sum(message)
    words = cluster.sum(words.clone())
    finish()
    take_out(message, gradients)
    return words


class PowerSgd:
    """Sends each gradient matrix as the product of two thin ones (Vogels et al. 2019). What that misses is kept, and
    added to the next step's gradient."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._missed: list[Tensor] = []
        self._right: list[Tensor] = []
        """One thin matrix for each gradient matrix: the last step's is the next one's first guess."""

    def __call__(self, cluster: Cluster, words: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        large = [gradient for gradient in gradients if self._pays(gradient)]
        small = [gradient for gradient in gradients if not self._pays(gradient)]
        if len(self._missed) != len(large):
            generator = torch.Generator().manual_seed(SEED)
            self._missed = [torch.zeros_like(gradient) for gradient in large]
            self._right = [
                torch.randn(gradient.shape[1], self._rank, generator=generator).to(gradient.device)
                for gradient in large
            ]
        wanted = [gradient + missed for gradient, missed in zip(large, self._missed, strict=True)]
        left = [matrix @ right for matrix, right in zip(wanted, self._right, strict=True)]
        words = send_plain(cluster, words, [*small, *left])
        left = [torch.linalg.qr(matrix).Q for matrix in left]
        self._right = [matrix.mT @ basis for matrix, basis in zip(wanted, left, strict=True)]
        send_plain(cluster, words.new_empty(0), self._right)
        for gradient, matrix, basis, right, missed in zip(large, wanted, left, self._right, self._missed, strict=True):
            torch.mm(basis, right.mT, out=gradient)
            torch.sub(matrix, gradient, alpha=1 / cluster.world, out=missed)
        return words

    def _pays(self, gradient: Tensor) -> bool:
        return gradient.ndim == 2 and sum(gradient.shape) * self._rank < gradient.numel()


class LocalSteps:
    """Workers update by themselves, each from its own share, and every `every` steps bring their weights together.

    What the weights moved since the last meeting is averaged and taken as the gradient of an outer optimizer with
    Nesterov momentum (DiLoCo, Douillard et al. 2023). With `streaming` the weights are cut into as many parts as there
    are steps between meetings, and in each step another part meets while the next step computes: the link is always
    busy and nobody waits for it (Streaming DiLoCo, Douillard et al. 2025). Without, all parts meet at once.

    A worker's gradient is noisier than the whole batch's. Adam divides by noise and signal together, so that the mean
    of workers' steps is shorter than the step of all; by how much is seen in how far they move apart, and their rate is
    raised by it (`rate_factor`).
    """

    def __init__(
        self,
        cluster: Cluster,
        parameters: Sequence[nn.Parameter],
        every: int,
        wire: str,
        rate: float,
        momentum: float,
        *,
        streaming: bool,
    ) -> None:
        self._cluster = cluster
        self._parameters = list(parameters)
        self._every, self._wire, self._streaming = every, wire, streaming
        self._outer_rate, self._outer_momentum = rate, momentum
        self._parts = _cut(self._parameters, every if streaming else 1)
        self._common = [put_together(part) for part in self._parts]
        """The weights that all workers share: those after each part's last meeting."""
        self._momentum = [torch.zeros_like(common) for common in self._common]
        self._factor = 1.0
        self._begin()

    def _begin(self) -> None:
        self._arrives: Callable[[], Tensor] | None = None
        self._words: Tensor | None = None
        """Of the steps since the last meeting."""
        self._agreed: Tensor | None = None
        self._steps = 0
        self._next_part = 0

    @torch.no_grad()
    def gradients(self, words: Tensor, tokens: int) -> Tensor:
        """The gradient of this worker's share, divided by its own tokens; and the part that met meanwhile arrives."""
        mine = float(words[TOKENS])
        for parameter in self._parameters:
            _gradient(parameter).mul_(tokens / mine if mine else 0.0)
        self._agreed = self._arrives() if self._arrives is not None else None
        self._arrives = None
        self._words = words if self._words is None else self._words + words
        self._steps += 1
        return words

    @torch.no_grad()
    def settle(self, *, flush: bool) -> Tensor | None:
        agreed, self._agreed = self._agreed, None
        if flush or (not self._streaming and self._steps >= self._every):
            if self._steps:
                met = self._meet_all()
                agreed = met if agreed is None else agreed + met
        elif self._streaming:
            self._arrives = self._start_meeting(self._next_part)
            self._next_part = (self._next_part + 1) % len(self._parts)
        return agreed

    @property
    def common(self) -> bool:
        return self._steps == 0 and self._arrives is None

    @property
    def rate_factor(self) -> float:
        return min(self._factor, float(self._cluster.world**0.5))

    def _meet_all(self) -> Tensor:
        """Bring everything together now, and give the words."""
        words = [self._start_meeting(part)() for part in range(len(self._parts))]
        self._steps = 0
        return sum(words[1:], words[0])

    def _start_meeting(self, number: int) -> Callable[[], Tensor]:
        """Begin to average how far a part has moved; call the result to take the outer step with it."""
        part, common, momentum = self._parts[number], self._common[number], self._momentum[number]
        words = self._words if self._words is not None else common.new_zeros(words_size(self._cluster.world))
        self._words = None
        mine = common - put_together(part)
        arrive = _start_mean(self._cluster, mine, torch.cat([words, mine.square().sum().view(1)]), self._wire)

        def finish() -> Tensor:
            moved, agreed = arrive()
            self._compare(float(moved.square().sum()), float(agreed[-1]) / self._cluster.world)
            momentum.mul_(self._outer_momentum).add_(moved)
            common.sub_(self._outer_rate * (moved + self._outer_momentum * momentum))
            take_out(common, part)
            return agreed[:-1]

        return finish

    def _compare(self, together: float, alone: float) -> None:
        """Learn from the square norms of the mean movement and, on average, of each worker's."""
        if alone > 0:
            step = longer_step(together / alone, self._cluster.world, MOMENTUM_STEPS + self._every)
            self._factor = REMEMBERED * self._factor + (1 - REMEMBERED) * step

    def state(self) -> dict[str, Tensor]:
        return {"exchange/momentum": torch.cat(self._momentum), "exchange/rate_factor": torch.tensor(self._factor)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Begin anew from the present weights, which are common."""
        self._factor = float(state.get("exchange/rate_factor", 1.0))
        self._common = [put_together(part) for part in self._parts]
        kept = state.get("exchange/momentum")
        sizes = [len(common) for common in self._common]
        if kept is not None:
            # Copies: the outer step changes them in place, and the state may be one to return to once more.
            self._momentum = [part.to(self._common[0].device, copy=True) for part in torch.split(kept, sizes)]
        else:
            self._momentum = [torch.zeros_like(common) for common in self._common]
        self._begin()


def longer_step(likeness: float, world: int, steps: int) -> float:
    """How much longer Adam's step would be with the whole batch's gradient than the mean of its workers' steps is.

    `likeness`: the square norm of the workers' mean movement over that of one worker's, from 1 where all move alike to
    1 / world where they have nothing in common. Noise has been averaged over `steps` gradients by then: from what is
    left of it follows how much each gradient had.
    """
    noise = steps * max(0.0, 1 - likeness) / max(likeness - 1 / world, 1e-3)  # of a worker's gradient, over its signal
    return float(((1 + noise) / (1 + noise / world)) ** 0.5)


def _cut(parameters: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Views of all parameters in `count` parts of about one size, one after the other."""
    total = sum(parameter.numel() for parameter in parameters)
    bounds = [total * number // count for number in range(count + 1)]
    parts: list[list[Tensor]] = [[] for _ in range(count)]
    start = 0
    for parameter in parameters:
        row = parameter.detach().view(-1)
        for number in range(count):
            low, high = max(bounds[number] - start, 0), min(bounds[number + 1] - start, len(row))
            if low < high:
                parts[number].append(row[low:high])
        start += len(row)
    return [part for part in parts if part]


def _start_mean(cluster: Cluster, moved: Tensor, words: Tensor, wire: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """Begin to average over all workers; call the result for the mean, and the sum of the words."""
    words = words.clone()
    if cluster.world == 1:
        return lambda: (moved, words)
    finish_words = cluster.start_sum(words)
    if wire == "int8":
        # Sums of 8-bit numbers do not fit into 8 bits: everyone gets all parts, and adds them up.
        start = cluster.start_gather(_to_int8(moved))

        def arrive() -> tuple[Tensor, Tensor]:
            finish_words()
            parts = [_from_int8(part, moved.numel()) for part in start()]
            return sum(parts[1:], parts[0]) / cluster.world, words

        return arrive
    message = moved.bfloat16()
    finish = cluster.start_sum(message)

    def finished() -> tuple[Tensor, Tensor]:
        finish_words()
        finish()
        return message.float() / cluster.world, words

    return finished


def _to_int8(values: Tensor) -> Tensor:
    """Bytes: the scale of each block in float32, then its values as fractions of that scale."""
    blocks = nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return torch.cat(
        [scales.view(torch.uint8).flatten(), (blocks / scales).round_().to(torch.int8).view(torch.uint8).flatten()]
    )


def _from_int8(packed: Tensor, count: int) -> Tensor:
    blocks = -(-count // BLOCK)
    scales = packed[: 4 * blocks].clone().view(torch.float32).view(-1, 1)
    return (packed[4 * blocks :].view(torch.int8).view(-1, BLOCK).float() * scales).flatten()[:count]


def put_together(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of all values, a copy."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def take_out(message: Tensor, tensors: Sequence[Tensor]) -> None:
    """The reverse: write a vector's values into the tensors."""
    parts = torch.split(message, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A worker without a share has no gradient, and adds nothing."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad

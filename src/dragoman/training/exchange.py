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

from dragoman.training.cluster import Cluster

TOKENS, STOPS, TIMES = 2, 3, 4
"""Places among the words, after the sums of the two losses: tokens, wishes to stop, and from there on times by rank:
how long each computed, and then how long each took until it was ready to exchange."""
BLOCK = 1024
"""Elements that share a scale in 8 bits."""
SEED = 20_190_531
"""Of PowerSGD's first guess, which must be the same everywhere."""


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

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        pass


Wire = Callable[[Cluster, Tensor, Sequence[Tensor]], Tensor]
"""Replaces gradients by their sums over all workers, and gives the sums of the words."""


def send_plain(cluster: Cluster, words: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Everything in one message, as it is."""
    message = cluster.sum(torch.cat([words, _flat(gradients)]))
    _spread(message[len(words) :], gradients)
    return message[: len(words)]


def send_bf16(cluster: Cluster, words: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Half the bytes. The words keep their bits: a count in bfloat16 is inexact past 256."""
    message = _flat(gradients).bfloat16()
    finish = cluster.start_sum(message)
    words = cluster.sum(words.clone())
    finish()
    _spread(message, gradients)
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
    Nesterov momentum (DiLoCo, Douillard et al. 2023). With `overlap` the averaging runs behind the next steps: what a
    worker does meanwhile is kept and put on top of the new common weights.
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
        overlap: bool,
    ) -> None:
        self._cluster = cluster
        self._parameters = list(parameters)
        self._every, self._wire, self._overlap = every, wire, overlap
        self._outer_rate, self._outer_momentum = rate, momentum
        self._common = _flat(self._parameters)
        """The weights that all workers share: those after the last meeting."""
        self._momentum = torch.zeros_like(self._common)
        self._sent = self._common
        """This worker's weights when it last sent how far they had moved."""
        self._arrives: Callable[[], tuple[Tensor, Tensor]] | None = None
        self._words: Tensor | None = None
        self._steps = 0

    @torch.no_grad()
    def gradients(self, words: Tensor, tokens: int) -> Tensor:
        """No exchange: the gradient of this worker's share, divided by its own tokens."""
        mine = float(words[TOKENS])
        for parameter in self._parameters:
            _gradient(parameter).mul_(tokens / mine if mine else 0.0)
        self._words = words if self._words is None else self._words + words
        self._steps += 1
        return words

    @torch.no_grad()
    def settle(self, *, flush: bool) -> Tensor | None:
        if not flush and self._steps < self._every:
            return None
        agreed = [self._receive()] if self._arrives is not None else []
        if self._steps:
            self._send()
        if self._arrives is not None and (flush or not self._overlap):
            agreed.append(self._receive())
        return sum(agreed[1:], agreed[0]) if agreed else None

    @property
    def common(self) -> bool:
        return self._steps == 0 and self._arrives is None

    def _send(self) -> None:
        """Begin to average how far the weights have moved."""
        assert self._words is not None
        self._sent = _flat(self._parameters)
        self._arrives = _start_mean(self._cluster, self._common - self._sent, self._words, self._wire)
        self._words, self._steps = None, 0

    def _receive(self) -> Tensor:
        """Make the outer step, and put on top of it what this worker has done since it sent its part."""
        assert self._arrives is not None
        moved, words = self._arrives()
        self._arrives = None
        self._momentum.mul_(self._outer_momentum).add_(moved)
        self._common = self._common - self._outer_rate * (moved + self._outer_momentum * self._momentum)
        meanwhile = _flat(self._parameters) - self._sent
        _spread(self._common + meanwhile, self._parameters)
        return words

    def state(self) -> dict[str, Tensor]:
        return {"exchange/momentum": self._momentum}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Begin anew from the present weights, which are common."""
        self._common = self._sent = _flat(self._parameters)
        momentum = state.get("exchange/momentum")
        # A copy: the outer step changes it in place, and the state may be one to return to once more.
        self._momentum = (
            torch.zeros_like(self._common) if momentum is None else momentum.to(self._common.device, copy=True)
        )
        self._arrives, self._words, self._steps = None, None, 0


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


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of all values, a copy."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _spread(message: Tensor, tensors: Sequence[Tensor]) -> None:
    """The reverse: write a vector's values into the tensors."""
    parts = torch.split(message, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A worker without a share has no gradient, and adds nothing."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad

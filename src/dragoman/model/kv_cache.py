"""What a search remembers between steps: the keys and values of all that was said, and of the source.

On a CPU they are kept where attention wants them, and move with their hypotheses. On a GPU they stay where they were
put, and only a table of where to find them moves: see `IndexedState`.

Shapes: S sentences, N = S * beam hypotheses, H heads, D features of a head, P tokens said so far, R room for tokens,
L tokens of the longest source.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.model.attention import without_cudnn


@dataclass
class LayerCache:
    """Keys and values of one decoder layer."""

    keys: Tensor
    """[N, H, R, D]; filled up to the state's step."""
    values: Tensor
    memory_keys: Tensor
    """[S, H, L, D]: once for each sentence, however many hypotheses it has."""
    memory_values: Tensor

    def attend_to_past(self, q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
        """Stores this step's keys and values, then looks at all so far. [N, H, D] each -> [N, d]."""
        self.keys[:, :, step] = k
        self.values[:, :, step] = v
        keys, values = self.keys[:, :, : step + 1], self.values[:, :, : step + 1]
        with without_cudnn(q.device):
            return F.scaled_dot_product_attention(q[:, :, None].to(keys.dtype), keys, values).flatten(1)

    def attend_to_source(self, q: Tensor, mask: Tensor | None, beam: int) -> Tensor:
        """A sentence's hypotheses look at its source together. [N, H, D] -> [N, d]."""
        q_SHBD = q.view(-1, beam, *q.shape[1:]).transpose(1, 2).to(self.memory_keys.dtype)
        with without_cudnn(q.device):
            out_SHBD = F.scaled_dot_product_attention(q_SHBD, self.memory_keys, self.memory_values, mask)
        return out_SHBD.transpose(1, 2).flatten(2).flatten(0, 1)

    def weigh_source(self, q: Tensor, mask: Tensor | None, beam: int) -> Tensor:
        """How much of its attention each hypothesis gives to each source token, heads averaged. [N, H, D] -> [N, L]."""
        q_SHBD = q.view(-1, beam, *q.shape[1:]).transpose(1, 2).to(self.memory_keys.dtype)
        scores_SHBL = (q_SHBD @ self.memory_keys.mT).float() * q.shape[-1] ** -0.5
        if mask is not None:
            scores_SHBL = scores_SHBL.masked_fill(~mask, -math.inf)
        weights: Tensor = scores_SHBL.softmax(-1).mean(1).flatten(0, 1)
        return weights


@dataclass
class DecoderState:
    """Hypotheses under way: `beam` for each sentence, those of sentence s at rows s * beam to (s + 1) * beam - 1.

    Methods change the state in place. All hypotheses are equally long, `step` tokens.
    """

    caches: list[LayerCache]
    memory_mask: Tensor | None
    """[S, 1, 1, L] bool: true at real source tokens; none where all sources are equally long."""
    beam: int
    max_length: int
    step: int = 0
    watching: bool = False
    """Whether to note where hypotheses look; the attention kernels do not tell, so it is computed once more."""
    attention: Tensor | None = None
    """[N, L]: how the last step's attention was shared over the source, in the last layer, if `watching`."""

    moves_keys = True
    """Whether hypotheses that stay in their places save work."""

    @property
    def sentences(self) -> int:
        return self.caches[0].memory_keys.shape[0]

    @property
    def hypotheses(self) -> int:
        return self.sentences * self.beam

    def check_room(self, tokens: int) -> None:
        if tokens != self.hypotheses:
            raise ValueError(f"{tokens} tokens were given for {self.hypotheses} hypotheses")
        if self.step >= self.max_length:
            raise ValueError(f"the hypotheses already have the {self.max_length} tokens that decoding was started for")

    def positions(self, tokens: Tensor) -> Tensor:
        """Where in their hypotheses the next tokens stand, [N]."""
        return torch.full_like(tokens, self.step)

    def advance(self) -> None:
        self.step += 1

    def attend_to_past(self, cache: LayerCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return cache.attend_to_past(q, k, v, self.step)

    def attend_to_source(self, cache: LayerCache, q: Tensor) -> Tensor:
        return cache.attend_to_source(q, self.memory_mask, self.beam)

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis n goes on from what hypothesis parents[n] has said; [N] int64, parents of the same sentence."""
        moved = (parents != torch.arange(parents.shape[0], device=parents.device)).nonzero()[:, 0]
        origins = parents[moved]
        for cache in self.caches:
            for stored in (cache.keys, cache.values):
                said = stored[:, :, : self.step]
                said.index_copy_(0, moved, said.index_select(0, origins))

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drops all sentences but those listed, [S'] int64, which become 0, 1, 2, ... in the order given."""
        rows = (sentences[:, None] * self.beam + sentences.new_tensor(range(self.beam))).flatten()  # [N']
        for cache in self.caches:
            cache.keys, cache.values = (self._keep_said(stored, rows) for stored in (cache.keys, cache.values))
            cache.memory_keys = cache.memory_keys.index_select(0, sentences)
            cache.memory_values = cache.memory_values.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)

    def _keep_said(self, stored: Tensor, rows: Tensor) -> Tensor:
        """[N, H, R, D] -> [N', H, R, D], without copying the room that is still empty."""
        kept = stored.new_empty(rows.shape[0], *stored.shape[1:])
        kept[:, :, : self.step] = stored[:, :, : self.step].index_select(0, rows)
        return kept


class IndexedState(DecoderState):
    """The same on a GPU. Caches hold keys and values as [rows, R, H, D], those of the source packed, [T, H, D].

    What changes from step to step changes in place, and the step is known on the GPU too, so that a step can be
    recorded and replayed.
    """

    moves_keys = False

    def __init__(self, caches: list[LayerCache], bounds: Tensor, beam: int, max_length: int) -> None:
        super().__init__(caches, None, beam, max_length)
        self._bounds = bounds
        self.clock = torch.zeros(1, dtype=torch.long, device=bounds.device)
        """[1]: `step`, as the GPU counts it."""
        hypotheses = (bounds.shape[0] - 1) * beam
        self._rows = torch.arange(hypotheses, device=bounds.device)  # [N]: where each hypothesis puts what it says
        self._found = torch.zeros(hypotheses, max_length, dtype=torch.int32, device=bounds.device)  # [N, R]
        self._sentences = torch.arange(bounds.shape[0] - 1, dtype=torch.int32, device=bounds.device)  # [S]

    @property
    def sentences(self) -> int:
        return self._sentences.shape[0]

    def positions(self, tokens: Tensor) -> Tensor:
        return self.clock.expand_as(tokens)

    def advance(self) -> None:
        self.step += 1
        self.clock += 1

    def attend_to_past(self, cache: LayerCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from dragoman.model.kernels import decoding_kernel

        if cache is self.caches[0]:
            self._found.index_copy_(1, self.clock, self._rows.int()[:, None])
        places = self._rows * self.max_length + self.clock  # [N]
        for stored, new in ((cache.keys, k), (cache.values, v)):
            stored.flatten(0, 1).index_copy_(0, places, new.to(stored.dtype))
        return decoding_kernel.attend_to_past(q, cache.keys, cache.values, self._found, self.clock)

    def attend_to_source(self, cache: LayerCache, q: Tensor) -> Tensor:
        from dragoman.model.kernels import decoding_kernel

        return decoding_kernel.attend_to_source(
            q, cache.memory_keys, cache.memory_values, self._bounds, self._sentences, self.beam
        )

    def reorder(self, parents: Tensor) -> None:
        self._found.copy_(self._found.index_select(0, parents))

    def keep_sentences(self, sentences: Tensor) -> None:
        kept = (sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device)).flatten()  # [N']
        self._rows, self._found = self._rows.index_select(0, kept), self._found.index_select(0, kept)
        self._sentences = self._sentences.index_select(0, sentences)

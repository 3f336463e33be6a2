"""Decoder state between the steps of a search: the key-value cache of generated tokens and of the source.

`DecoderState` stores keys and values where attention reads them and copies them when hypotheses change rows.
`IndexedState`, for GPUs, leaves them where they were written and reorders only a table of their rows.

Shapes: S sentences, N = S * beam hypotheses, H heads, D features of a head, P tokens generated so far, R capacity for
tokens (`max_length`), L tokens of the longest source.
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
    """[S, H, L, D]: one copy per sentence, shared by its hypotheses."""
    memory_values: Tensor

    def attend_to_past(self, q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
        """Store this step's keys and values, then attend to all steps so far. [N, H, D] each -> [N, d]."""
        self.keys[:, :, step] = k
        self.values[:, :, step] = v
        keys, values = self.keys[:, :, : step + 1], self.values[:, :, : step + 1]
        with without_cudnn(q.device):
            return F.scaled_dot_product_attention(q[:, :, None].to(keys.dtype), keys, values).flatten(1)

    def attend_to_source(self, q: Tensor, mask: Tensor | None, beam: int) -> Tensor:
        """Cross-attention, with all hypotheses of a sentence as the queries of one product. [N, H, D] -> [N, d]."""
        q_SHBD = q.view(-1, beam, *q.shape[1:]).transpose(1, 2).to(self.memory_keys.dtype)
        with without_cudnn(q.device):
            out_SHBD = F.scaled_dot_product_attention(q_SHBD, self.memory_keys, self.memory_values, mask)
        return out_SHBD.transpose(1, 2).flatten(2).flatten(0, 1)

    def source_attention_weights(self, q: Tensor, mask: Tensor | None, beam: int) -> Tensor:
        """Cross-attention weights of each hypothesis, averaged over heads. [N, H, D] -> [N, L]."""
        q_SHBD = q.view(-1, beam, *q.shape[1:]).transpose(1, 2).to(self.memory_keys.dtype)
        scores_SHBL = (q_SHBD @ self.memory_keys.mT).float() * q.shape[-1] ** -0.5
        if mask is not None:
            scores_SHBL = scores_SHBL.masked_fill(~mask, -math.inf)
        weights: Tensor = scores_SHBL.softmax(-1).mean(1).flatten(0, 1)
        return weights


class DecoderState:
    """The unfinished hypotheses: `beam` for each sentence, those of sentence s in rows s * beam to (s + 1) * beam - 1.

    Methods change the state in place. All hypotheses have the same length, `step` tokens.
    """

    copies_on_reorder = True
    """True if `reorder` copies keys and values, so that hypotheses which keep their row save work."""

    def __init__(
        self,
        caches: list[LayerCache],
        memory_mask: Tensor | None,
        beam: int,
        max_length: int,
        device: torch.device,
        *,
        returns_attention: bool = False,
    ) -> None:
        self.caches = caches
        self.memory_mask = memory_mask
        """[S, 1, 1, L] bool: true at real source tokens; None where all sources have the same length."""
        self.beam, self.max_length = beam, max_length
        self.step = 0
        self.device_step = torch.zeros(1, dtype=torch.long, device=device)
        """[1]: `step` as a tensor, which a captured step reads and increments."""
        self.returns_attention = returns_attention
        """If true, steps set `attention`. The attention kernels do not return weights, so they are computed again."""
        self.attention: Tensor | None = None
        """[N, L]: cross-attention weights of the last step in the last layer, if `returns_attention`."""

    @property
    def sentences(self) -> int:
        return self.caches[0].memory_keys.shape[0]

    @property
    def hypotheses(self) -> int:
        return self.sentences * self.beam

    def check_capacity(self, tokens: int) -> None:
        if tokens != self.hypotheses:
            raise ValueError(f"{tokens} tokens were given for {self.hypotheses} hypotheses")
        if self.step >= self.max_length:
            raise ValueError(f"the hypotheses already have the {self.max_length} tokens that decoding was started for")

    def positions(self, tokens: Tensor) -> Tensor:
        """Positions of the next tokens, [N]."""
        return self.device_step.expand_as(tokens)

    def advance(self) -> None:
        self.step += 1
        self.device_step += 1

    def attend_to_past(self, cache: LayerCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return cache.attend_to_past(q, k, v, self.step)

    def attend_to_source(self, cache: LayerCache, q: Tensor) -> Tensor:
        return cache.attend_to_source(q, self.memory_mask, self.beam)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis n continue hypothesis parents[n]; [N] int64, parents of the same sentence."""
        moved = (parents != torch.arange(parents.shape[0], device=parents.device)).nonzero()[:, 0]
        origins = parents[moved]
        for cache in self.caches:
            for stored in (cache.keys, cache.values):
                generated = stored[:, :, : self.step]
                generated.index_copy_(0, moved, generated.index_select(0, origins))

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences but those listed, [S'] int64, which become 0, 1, 2, ... in the order given."""
        rows = (sentences[:, None] * self.beam + sentences.new_tensor(range(self.beam))).flatten()  # [N']
        for cache in self.caches:
            cache.keys, cache.values = (self._select_generated(stored, rows) for stored in (cache.keys, cache.values))
            cache.memory_keys = cache.memory_keys.index_select(0, sentences)
            cache.memory_values = cache.memory_values.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)

    def _select_generated(self, stored: Tensor, rows: Tensor) -> Tensor:
        """[N, H, R, D] -> [N', H, R, D], without copying the capacity that is not used yet."""
        selected = stored.new_empty(rows.shape[0], *stored.shape[1:])
        selected[:, :, : self.step] = stored[:, :, : self.step].index_select(0, rows)
        return selected


class IndexedState(DecoderState):
    """The same on a GPU. Caches hold keys and values as [rows, R, H, D], those of the source packed, [T, H, D].

    Everything that changes from step to step is a tensor that is updated in place, so that a CUDA graph can capture
    a step.
    """

    copies_on_reorder = False

    def __init__(self, caches: list[LayerCache], cu_seqlens: Tensor, beam: int, max_length: int) -> None:
        device = cu_seqlens.device
        super().__init__(caches, None, beam, max_length, device)
        self._cu_seqlens = cu_seqlens
        hypotheses = (cu_seqlens.shape[0] - 1) * beam
        self._write_rows = torch.arange(hypotheses, device=device)  # [N]: cache row that each hypothesis writes to
        self._read_rows = torch.zeros(hypotheses, max_length, dtype=torch.int32, device=device)
        """[N, R]: cache row that holds each token of each hypothesis."""
        self._sentences = torch.arange(cu_seqlens.shape[0] - 1, dtype=torch.int32, device=device)  # [S]

    @property
    def sentences(self) -> int:
        return self._sentences.shape[0]

    def attend_to_past(self, cache: LayerCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from dragoman.model.kernels import decoding_kernel

        if cache is self.caches[0]:
            self._read_rows.index_copy_(1, self.device_step, self._write_rows.int()[:, None])
        slots = self._write_rows * self.max_length + self.device_step  # [N]
        for stored, new in ((cache.keys, k), (cache.values, v)):
            stored.flatten(0, 1).index_copy_(0, slots, new.to(stored.dtype))
        return decoding_kernel.attend_to_past(q, cache.keys, cache.values, self._read_rows, self.device_step)

    def attend_to_source(self, cache: LayerCache, q: Tensor) -> Tensor:
        from dragoman.model.kernels import decoding_kernel

        return decoding_kernel.attend_to_source(
            q, cache.memory_keys, cache.memory_values, self._cu_seqlens, self._sentences, self.beam
        )

    def reorder(self, parents: Tensor) -> None:
        self._read_rows.copy_(self._read_rows.index_select(0, parents))

    def keep_sentences(self, sentences: Tensor) -> None:
        rows = (sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device)).flatten()  # [N']
        self._write_rows, self._read_rows = (
            self._write_rows.index_select(0, rows),
            self._read_rows.index_select(0, rows),
        )
        self._sentences = self._sentences.index_select(0, sentences)

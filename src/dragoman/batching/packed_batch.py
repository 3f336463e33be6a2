"""Packed sequences: the tokens of many sentences in one tensor without padding, and the sentence boundaries.

Every layer but attention works on rows of tokens and needs no boundaries, so no time is spent on padding. Attention
reads the boundaries from a `SequenceLayout`; where its kernel needs a padded tensor, it uses `SequenceLayout.pad`.

Shapes: T tokens of one side, S sentences, L tokens of the longest sentence, n features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED_LABEL = -100
"""Label of positions that neither loss nor gradients count."""


@dataclass(frozen=True)
class PaddingIndex:
    """Indexes that convert between packed [T] and padded [S, L] tokens, for kernels that need padding."""

    packed: Tensor
    """[S*L] int64: packed token of each padded position. Padding points at some other token and is masked later."""
    padded: Tensor
    """[T] int64: index of each packed token in the flattened padded tensor."""
    mask: Tensor
    """[S, 1, 1, L] bool: true at real tokens, false at padding."""


@dataclass(frozen=True)
class SequenceLayout:
    """Sentence boundaries in packed tokens: sentences cover the first `cu_seqlens[-1]` tokens; `pad_to_size` adds more.

    Trailing filler sentences are allowed: any number of at most `max_len` tokens, and after those any number of empty
    ones, on both sides alike, with `IGNORED_LABEL` as their labels. A sentence with a target needs a source: without
    one it would attend to nothing. For static shapes, see `pad_to_size`.
    """

    positions: Tensor
    """[T] int64: 0, 1, 2, ... within each sentence."""
    places: Tensor
    """[T] int32: the index of each token in the global batch, whose tokens are numbered sentence by sentence."""
    cu_seqlens: Tensor
    """[S+1] int32, cumulative sequence lengths: the first token of each sentence, then the number of tokens."""
    max_len: int
    """At least the length of the longest sentence."""
    sentence_ids: Tensor | None = None
    """[T] int32: the sentence of each token, only in batches of fixed size; filler tokens have the next free id."""

    @property
    def sentences(self) -> int:
        return self.cu_seqlens.shape[0] - 1

    @property
    def has_equal_lengths(self) -> bool:
        """True if all sentences have `max_len` tokens, so that padding is a view. Needs no device synchronization."""
        return self.positions.shape[0] == self.sentences * self.max_len

    @cached_property
    def padding(self) -> PaddingIndex:
        """Computed once per batch, on first use, and shared by all layers; variable-length kernels do not need it.

        The compiler cannot trace this: access it once before.
        """
        starts = self.cu_seqlens[:-1].long()  # [S]
        lengths = self.cu_seqlens.diff()  # [S]
        columns = torch.arange(self.max_len, device=starts.device)  # [L]
        tokens = self.positions.shape[0]
        sentence_ids = torch.repeat_interleave(lengths.long(), output_size=tokens)  # [T]
        packed = (starts[:, None] + columns).clamp(max=tokens - 1).flatten()
        # An empty sentence attends to everything: a softmax over nothing would be NaN.
        mask = (columns < lengths[:, None]) | (lengths[:, None] == 0)  # [S, L]
        return PaddingIndex(packed, sentence_ids * self.max_len + self.positions, mask[:, None, None, :])

    def pad(self, x: Tensor) -> Tensor:
        """[T, n] -> [S, L, n]."""
        if not self.has_equal_lengths:
            x = _Pad.apply(x, self.padding.packed, self.padding.padded)  # type: ignore[no-untyped-call]
        return x.view(self.sentences, self.max_len, -1)

    def unpad(self, x: Tensor) -> Tensor:
        """[S, L, n] -> [T, n]."""
        x = x.flatten(0, 1)
        if not self.has_equal_lengths:
            x = _Unpad.apply(x, self.padding.padded)  # type: ignore[no-untyped-call]
        return x

    def map(self, function: Callable[[Tensor], Tensor]) -> SequenceLayout:
        sentence_ids = None if self.sentence_ids is None else function(self.sentence_ids)
        tensors = function(self.positions), function(self.places), function(self.cu_seqlens)
        return SequenceLayout(*tensors, self.max_len, sentence_ids)

    def to(self, device: torch.device | str) -> SequenceLayout:
        return self.map(lambda tensor: tensor.to(device))


@dataclass(frozen=True)
class Packed:
    """Tokens of many sentences without padding, [T] int64, and their layout."""

    tokens: Tensor
    layout: SequenceLayout

    def map(self, function: Callable[[Tensor], Tensor]) -> Packed:
        return Packed(function(self.tokens), self.layout.map(function))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Packed:
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences, in the same order on both sides."""

    source: Packed
    target: Packed
    """Decoder input: the translation shifted right behind the start token."""
    labels: Tensor
    """[T of target] int64: the next token at each position, or `IGNORED_LABEL`."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(self.source.map(function), self.target.map(function), function(self.labels))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in the same order for every batch."""
        for side in (self.source, self.target):
            yield from (side.tokens, side.layout.positions, side.layout.places, side.layout.cu_seqlens)
            if side.layout.sentence_ids is not None:
                yield side.layout.sentence_ids
        yield self.labels

    def pinned(self) -> Batch:
        """A copy in pinned memory, from which a GPU copies asynchronously."""
        return self.map(lambda tensor: tensor.pin_memory())


def pack(tokens: Tensor, lengths: Tensor, first_places: Tensor | None = None) -> Packed:
    """Pack [T] tokens as sentences of the given [S] lengths. Both on the CPU: the longest length is a Python int.

    `first_places` [S] are the places of the first tokens in the global batch; without them, this is the global batch.
    """
    ends = lengths.cumsum(0)
    starts = ends - lengths
    positions = torch.arange(tokens.shape[0]) - torch.repeat_interleave(starts, lengths)  # [T]
    places = positions + torch.repeat_interleave(starts if first_places is None else first_places, lengths)
    cu_seqlens = torch.cat([ends.new_zeros(1), ends]).int()
    return Packed(tokens, SequenceLayout(positions, places.int(), cu_seqlens, int(lengths.max())))


def pad_to_size(batch: Batch, source_tokens: int, target_tokens: int, max_len: int) -> Batch:
    """The same pairs in tensors whose sizes depend only on the given sizes; on the CPU.

    Tokens after the last sentence are filler and belong to no sentence. Only kernels that read `sentence_ids` skip it.
    """
    missing = target_tokens - batch.labels.shape[0]
    return Batch(
        _pad_side(batch.source, source_tokens, max_len),
        _pad_side(batch.target, target_tokens, max_len),
        F.pad(batch.labels, (0, missing), value=IGNORED_LABEL),
    )


def _pad_side(side: Packed, tokens: int, max_len: int) -> Packed:
    layout, missing = side.layout, tokens - side.tokens.shape[0]
    ids = torch.arange(layout.sentences, dtype=torch.int32)
    sentence_ids = torch.repeat_interleave(ids, layout.cu_seqlens.diff())
    # One bound for each sentence that would fit, and one more, which ends the filler.
    cu_seqlens = F.pad(layout.cu_seqlens, (0, tokens + 1 - layout.sentences), value=int(layout.cu_seqlens[-1]))
    padded_layout = SequenceLayout(
        F.pad(layout.positions, (0, missing)),
        F.pad(layout.places, (0, missing)),
        cu_seqlens,
        max_len,
        F.pad(sentence_ids, (0, missing), value=layout.sentences),
    )
    return Packed(F.pad(side.tokens, (0, missing)), padded_layout)


def pack_sentences(sentences: Sequence[Sequence[int]]) -> Packed:
    """Pack lists of token ids."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    return pack(torch.tensor([token for sentence in sentences for token in sentence]), lengths)


# Both directions have their own backward pass because autograd cannot know that no index repeats: it would add rows
# one by one where a gather or a copy suffices.


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, padded: Tensor) -> Tensor:
        ctx.save_for_backward(padded)
        return x.index_select(0, packed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # Padding is masked, so its gradient is dropped.
        (padded,) = ctx.saved_tensors
        return grad.index_select(0, padded), None, None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, padded: Tensor) -> Tensor:
        ctx.save_for_backward(padded)
        ctx.positions = x.shape[0]
        return x.index_select(0, padded)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (padded,) = ctx.saved_tensors
        return grad.new_zeros(ctx.positions, grad.shape[1]).index_copy_(0, padded, grad), None

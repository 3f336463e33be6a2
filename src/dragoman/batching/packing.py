"""Sentences laid end to end, and where each begins.

Every layer but attention works on rows of tokens and never learns where a sentence ends, so no time goes into padding.
Attention reads the boundaries from a `Layout`; where its kernel needs a rectangle, it uses the layout's `Grid`.

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
"""A label that counts for nothing: the loss and every gradient skip its position."""


@dataclass(frozen=True)
class Grid:
    """The rectangle [S, L] that holds the packed tokens, for kernels that want one."""

    rows: Tensor
    """[S*L] int64: the token that each cell shows. Cells past a sentence's end show some other token, masked later."""
    cells: Tensor
    """[T] int64: the cell of each token."""
    mask: Tensor
    """[S, 1, 1, L] bool: true where a cell holds a key of its sentence."""


@dataclass(frozen=True)
class Layout:
    """Where sentences begin. The sentences cover all tokens: `cu_seqlens[-1]` equals their number.

    Trailing filler sentences are allowed: any number of at most `max_len` tokens, and after those any number of empty
    ones, on both sides alike, with `IGNORED_LABEL` as their labels. A sentence with a target needs a source: without
    one it would attend to nothing. For shapes that never change, see `filled`.
    """

    positions: Tensor
    """[T] int64: 0, 1, 2, ... within each sentence."""
    cu_seqlens: Tensor
    """[S+1] int32: the first token of each sentence, then the number of tokens."""
    max_len: int
    """At least the length of the longest sentence."""
    sentence_of: Tensor | None = None
    """[T] int32: the sentence of each token, in batches of fixed size; tokens past the last sentence name the next."""

    @property
    def sentences(self) -> int:
        return self.cu_seqlens.shape[0] - 1

    @property
    def rectangular(self) -> bool:
        """Whether all sentences are `max_len` long, so that the grid is a mere view: known without a sync."""
        return self.positions.shape[0] == self.sentences * self.max_len

    @cached_property
    def grid(self) -> Grid:
        """Made once a batch, on first use, and shared by all layers; never made for variable-length kernels.

        A compiled model cannot trace its making: use it once before.
        """
        starts = self.cu_seqlens[:-1].long()  # [S]
        lengths = self.cu_seqlens.diff()  # [S]
        columns = torch.arange(self.max_len, device=starts.device)  # [L]
        tokens = self.positions.shape[0]
        sentence_of = torch.repeat_interleave(lengths.long(), output_size=tokens)  # [T]
        rows = (starts[:, None] + columns).clamp(max=tokens - 1).flatten()
        # An empty sentence may look at everything: a softmax over nothing would be NaN.
        mask = (columns < lengths[:, None]) | (lengths[:, None] == 0)  # [S, L]
        return Grid(rows=rows, cells=sentence_of * self.max_len + self.positions, mask=mask[:, None, None, :])

    def to_grid(self, x: Tensor) -> Tensor:
        """[T, n] -> [S, L, n]."""
        if not self.rectangular:
            x = _ToGrid.apply(x, self.grid.rows, self.grid.cells)  # type: ignore[no-untyped-call]
        return x.view(self.sentences, self.max_len, -1)

    def from_grid(self, x: Tensor) -> Tensor:
        """[S, L, n] -> [T, n]."""
        x = x.flatten(0, 1)
        if not self.rectangular:
            x = _FromGrid.apply(x, self.grid.cells)  # type: ignore[no-untyped-call]
        return x

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Layout:
        sentence_of = None if self.sentence_of is None else change(self.sentence_of)
        return Layout(change(self.positions), change(self.cu_seqlens), self.max_len, sentence_of)

    def to(self, device: torch.device | str) -> Layout:
        return self.mapped(lambda tensor: tensor.to(device))


@dataclass(frozen=True)
class Packed:
    """Tokens of many sentences without padding: [T] int64, with their layout."""

    tokens: Tensor
    layout: Layout

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Packed:
        return Packed(change(self.tokens), self.layout.mapped(change))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Packed:
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences, in the same order on both sides."""

    source: Packed
    target: Packed
    """What the decoder reads: the translation shifted right, begun by the start token."""
    labels: Tensor
    """[T of target] int64: what the decoder should say next, or `IGNORED_LABEL`."""

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(self.source.mapped(change), self.target.mapped(change), change(self.labels))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def tensors(self) -> Iterator[Tensor]:
        """All of them, in the same order for every batch."""
        for side in (self.source, self.target):
            yield from (side.tokens, side.layout.positions, side.layout.cu_seqlens)
            if side.layout.sentence_of is not None:
                yield side.layout.sentence_of
        yield self.labels

    def pinned(self) -> Batch:
        """In memory that a GPU can read by itself, while the processor goes on."""
        return self.mapped(lambda tensor: tensor.pin_memory())


def pack(tokens: Tensor, lengths: Tensor) -> Packed:
    """Lays out [T] tokens as sentences of the given [S] lengths. Both on the CPU: Python must know the longest."""
    ends = lengths.cumsum(0)
    starts = torch.repeat_interleave(ends - lengths, lengths)  # [T]
    cu_seqlens = torch.cat([ends.new_zeros(1), ends]).int()
    return Packed(tokens, Layout(torch.arange(tokens.shape[0]) - starts, cu_seqlens, int(lengths.max())))


def filled(batch: Batch, source_tokens: int, target_tokens: int, max_len: int) -> Batch:
    """The same pairs in tensors whose sizes depend on the numbers given alone; on the CPU.

    Tokens past the last sentence are filler that belongs to none. Only kernels that read `sentence_of` know that.
    """
    missing = target_tokens - batch.labels.shape[0]
    return Batch(
        _filled(batch.source, source_tokens, max_len),
        _filled(batch.target, target_tokens, max_len),
        F.pad(batch.labels, (0, missing), value=IGNORED_LABEL),
    )


def _filled(side: Packed, tokens: int, max_len: int) -> Packed:
    layout, missing = side.layout, tokens - side.tokens.shape[0]
    numbers = torch.arange(layout.sentences, dtype=torch.int32)
    sentence_of = torch.repeat_interleave(numbers, layout.cu_seqlens.diff())
    # As many bounds as there could be sentences, and one more, so that the one after the last has an end too.
    bounds = F.pad(layout.cu_seqlens, (0, tokens + 1 - layout.sentences), value=int(layout.cu_seqlens[-1]))
    filled_layout = Layout(
        F.pad(layout.positions, (0, missing)),
        bounds,
        max_len,
        F.pad(sentence_of, (0, missing), value=layout.sentences),
    )
    return Packed(F.pad(side.tokens, (0, missing)), filled_layout)


def pack_sentences(sentences: Sequence[Sequence[int]]) -> Packed:
    """The same from lists of token ids."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    return pack(torch.tensor([token for sentence in sentences for token in sentence]), lengths)


# Both directions are written as functions of their own because autograd cannot know that no token is shown twice:
# it would add rows one by one where a gather or a copy does.


class _ToGrid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, cells: Tensor) -> Tensor:
        ctx.save_for_backward(cells)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # Cells past a sentence's end are masked: what flows into them means nothing.
        (cells,) = ctx.saved_tensors
        return grad.index_select(0, cells), None, None


class _FromGrid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cells: Tensor) -> Tensor:
        ctx.save_for_backward(cells)
        ctx.cells = x.shape[0]
        return x.index_select(0, cells)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (cells,) = ctx.saved_tensors
        return grad.new_zeros(ctx.cells, grad.shape[1]).index_copy_(0, cells, grad), None

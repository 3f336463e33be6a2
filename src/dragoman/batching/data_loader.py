"""From the plan to tensors: each worker's share of each batch, cut into pieces that fit, made ahead of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dragoman.batching.packing import Batch, Packed, filled, pack
from dragoman.batching.plan import Indexes, fill, plan_epoch, share
from dragoman.corpus.shards import Pairs
from dragoman.corpus.tokenizer import Tokenizer

SIZE_STEPS = 16
"""Sizes of tensors are sixteenths of the largest: a size that was used before is ready to be used again."""
SIZE_MULTIPLE = 128
"""Tokens that matrix products on a GPU take at once."""


@dataclass(frozen=True)
class Position:
    """Where a run is in its data: all that a resume needs to know."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class WorkerBatch:
    """One worker's part of a global batch."""

    position: Position
    next_position: Position
    pairs: Indexes
    """This worker's pairs, from the shortest to the longest."""
    pieces: Sequence[Batch]
    """The same as tensors, in pieces of at most `micro_tokens` a side."""
    micro_tokens: int
    global_pairs: int
    source_tokens: int
    target_tokens: int
    """Tokens of the global batch, which every worker knows without asking."""
    my_target_tokens: int


class DataLoader:
    """The shares of one worker, from any position on."""

    def __init__(
        self, pairs: Pairs, tokenizer: Tokenizer, tokens: int, seed: int, micro_tokens: int, fixed_sizes: bool = False
    ) -> None:
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._seed = seed
        self._lengths = pairs.lengths()
        self.micro_tokens = micro_tokens
        """Most tokens of a side in one piece; lowered when memory turns out not to suffice."""
        self.fixed_sizes = fixed_sizes
        """Whether pieces are filled up to a size that is the same for all shares, in pinned memory."""
        self._longest = int(self._lengths.max(initial=0))
        self._fullest = self._find_fullest() if fixed_sizes else (tokens, tokens)
        """Source and target tokens of the fullest batches."""
        self._portion = 1.0

    def shares(self, position: Position, shares: Sequence[float], rank: int) -> Iterator[WorkerBatch]:
        """Shares without end, epoch after epoch."""
        self._portion = shares[rank] / sum(shares)
        while True:
            plan = plan_epoch(self._lengths, self._tokens, self._seed, position.epoch)
            for batch in range(position.batch, len(plan)):
                at = Position(position.epoch, batch)
                following = Position(position.epoch, batch + 1) if batch + 1 < len(plan) else Position(at.epoch + 1)
                whole = plan[batch]
                tokens = self._lengths[whole].sum(axis=0, dtype=np.int64)
                mine = share(whole, self._lengths, shares, rank)
                ordered = mine[np.argsort(self._lengths[mine].max(axis=1), kind="stable")]
                limit = self.micro_tokens
                pieces = self.cut(ordered, limit)
                my_tokens = int(self._lengths[mine, 1].sum(dtype=np.int64))
                yield WorkerBatch(
                    at, following, ordered, pieces, limit, len(whole), int(tokens[0]), int(tokens[1]), my_tokens
                )
            position = Position(position.epoch + 1)

    def cut(self, pairs: Indexes, micro_tokens: int) -> list[Batch]:
        """Pairs as tensors, in pieces of at most `micro_tokens` a side, or of one pair that is longer than that; as few
        as possible, and of about one size."""
        if len(pairs) == 0:
            return []
        lengths = self._lengths[pairs]
        longest = int(lengths.max())
        most = max(micro_tokens, longest)
        bounds = fill(lengths, most)
        if (count := len(bounds) - 1) > 1:
            even = fill(lengths, min(most, -(-int(lengths.sum(axis=0).max()) // count) + longest))
            bounds = even if len(even) == len(bounds) else bounds
        pieces = [self.tensors(part) for part in np.split(pairs, bounds[1:-1])]
        return [self._fill_up(piece) for piece in pieces] if self.fixed_sizes else pieces

    def _find_fullest(self) -> tuple[int, int]:
        plan = plan_epoch(self._lengths, self._tokens, self._seed, 0)
        source, target = np.add.reduceat(self._lengths[plan.order], plan.bounds[:-1]).max(axis=0).tolist()
        return source, target

    def _fill_up(self, piece: Batch) -> Batch:
        sides = zip((piece.source, piece.target), self._fullest, strict=True)
        source, target = (self._size(side.tokens.shape[0], fullest) for side, fullest in sides)
        full = filled(piece, source, target, self._longest)
        return full.pinned() if torch.cuda.is_available() else full

    def _size(self, tokens: int, fullest: int) -> int:
        """The size of a side that has so many tokens, and has this worker's part of `fullest` in the fullest batch."""
        most = max(self.micro_tokens, self._longest)
        # No worker's share exceeds its due by more than a sentence, or hardly ever; and no piece an even part of it.
        whole = round(fullest * self._portion) + (self._longest if self._portion < 1 else 0)
        pieces = -(-whole // most)
        due = whole if pieces == 1 else min(most, -(-whole // pieces) + self._longest)
        step = _rounded_up(-(-most // SIZE_STEPS), SIZE_MULTIPLE)
        return min(_rounded_up(max(tokens, due), step), _rounded_up(most, SIZE_MULTIPLE))

    def tensors(self, pairs: Indexes) -> Batch:
        """Packed tensors of some pairs: the decoder reads the translation shifted right, begun by the start mark."""
        tokens = self._pairs.gather(pairs)
        sources, labels = (torch.from_numpy(side.astype(np.int64)) for side in tokens)
        lengths = torch.from_numpy(self._lengths[pairs].astype(np.int64))  # [S, 2]
        source = pack(sources, lengths[:, 0])
        target = pack(labels, lengths[:, 1])
        read = labels.roll(1)
        read[target.layout.cu_seqlens[:-1].long()] = self._tokenizer.start
        return Batch(source, Packed(read, target.layout), labels)


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple

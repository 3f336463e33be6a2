"""The data loader: each worker's share of each global batch, as packed tensors in micro-batches that fit in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dragoman.batching.batch_plan import Indexes, Lengths, Plan, batch_bounds, plan_epoch, share
from dragoman.batching.packed_batch import Batch, Packed, pack, pad_to_size
from dragoman.corpus.shards import Pairs
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.prefetch import Prefetcher

SIZE_STEPS = 16
"""Tensor sizes are multiples of 1/16 of the largest one: few different sizes, so that CUDA graphs are reused."""
SIZE_MULTIPLE = 128
"""Tile size of matrix products on a GPU, in tokens."""
PREFETCHED_BATCHES = 8


@dataclass(frozen=True)
class Position:
    """The position of a run in its data, all that is needed to resume."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class WorkerBatch:
    """One worker's share of a global batch."""

    position: Position
    next_position: Position
    pairs: Indexes
    """This worker's pairs, from the shortest to the longest."""
    first_places: Indexes
    """[pairs, 2]: the places of their first source and target tokens among all tokens of the global batch."""
    micro_batches: Sequence[Batch]
    """The same as tensors, in micro-batches of at most `micro_batch_tokens` on each side."""
    micro_batch_tokens: int
    global_pairs: int
    source_tokens: int
    target_tokens: int
    """Tokens of the global batch, known to every worker without communication."""
    worker_target_tokens: int


class DataLoader:
    """The shares of one worker, from any position on."""

    def __init__(
        self,
        pairs: Pairs,
        tokenizer: Tokenizer,
        batch_tokens: int,
        seed: int,
        micro_batch_tokens: int,
        *,
        fixed_sizes: bool = False,
    ) -> None:
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._batch_tokens = batch_tokens
        self._seed = seed
        self.lengths = pairs.lengths()
        """Source and target tokens of every pair, [pairs, 2]."""
        self.micro_batch_tokens = micro_batch_tokens
        """Maximum tokens on each side of a micro-batch; lowered after an out-of-memory error."""
        self.fixed_sizes = fixed_sizes
        """If set, micro-batches are padded to a few sizes, in pinned memory, so that CUDA graphs can be replayed."""
        self._longest = int(self.lengths.max(initial=0))
        self._largest_batch = self._find_largest_batch() if fixed_sizes else (batch_tokens, batch_tokens)
        """Source and target tokens of the largest global batches."""
        self._share = 1.0

    def batches(self, position: Position, shares: Sequence[float], rank: int) -> Iterator[WorkerBatch]:
        """This rank's shares of the global batches from a position on, epoch after epoch, without end."""
        self._share = shares[rank] / sum(shares)
        while True:
            plan = self._plan(position.epoch)
            for number in range(position.batch, len(plan)):
                current = Position(position.epoch, number)
                last = number + 1 == len(plan)
                following = Position(position.epoch + 1) if last else Position(position.epoch, number + 1)
                yield self._worker_batch(plan[number], current, following, shares, rank)
            position = Position(position.epoch + 1)

    def _plan(self, epoch: int) -> Plan:
        chosen = self._pairs.of_epoch(epoch, self._seed)
        return plan_epoch(self.lengths, self._batch_tokens, self._seed, epoch, chosen)

    def first_epoch_lengths(self) -> Lengths:
        """Source and target tokens of the pairs of the first epoch, [pairs, 2]."""
        chosen = self._pairs.of_epoch(0, self._seed)
        return self.lengths if chosen is None else self.lengths[chosen]

    def _worker_batch(
        self, global_batch: Indexes, position: Position, following: Position, shares: Sequence[float], rank: int
    ) -> WorkerBatch:
        lengths = self.lengths[global_batch].astype(np.int64)
        source_tokens, target_tokens = lengths.sum(axis=0).tolist()
        rows = share(np.arange(len(global_batch)), lengths, shares, rank)
        by_length = rows[np.argsort(lengths[rows].max(axis=1), kind="stable")]
        pairs, first_places = global_batch[by_length], (lengths.cumsum(axis=0) - lengths)[by_length]
        limit = self.micro_batch_tokens
        return WorkerBatch(
            position=position,
            next_position=following,
            pairs=pairs,
            first_places=first_places,
            micro_batches=self.split(pairs, first_places, limit),
            micro_batch_tokens=limit,
            global_pairs=len(global_batch),
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            worker_target_tokens=int(lengths[rows, 1].sum()),
        )

    def split(self, pairs: Indexes, first_places: Indexes, micro_batch_tokens: int) -> list[Batch]:
        """Pairs as tensors, in as few micro-batches as possible and of about equal size.

        Each has at most `micro_batch_tokens` on each side, or a single pair that is longer.
        """
        if len(pairs) == 0:
            return []
        lengths = self.lengths[pairs]
        longest = int(lengths.max())
        most = max(micro_batch_tokens, longest)
        bounds = batch_bounds(lengths, most)
        if (count := len(bounds) - 1) > 1:
            even = batch_bounds(lengths, min(most, -(-int(lengths.sum(axis=0).max()) // count) + longest))
            bounds = even if len(even) == len(bounds) else bounds
        parts = zip(*(np.split(each, bounds[1:-1]) for each in (pairs, first_places)), strict=True)
        micro_batches = [self._to_tensors(*part) for part in parts]
        return [self._pad_to_fixed_size(batch) for batch in micro_batches] if self.fixed_sizes else micro_batches

    def _find_largest_batch(self) -> tuple[int, int]:
        plan = self._plan(0)
        source, target = np.add.reduceat(self.lengths[plan.order], plan.bounds[:-1]).max(axis=0).tolist()
        return source, target

    def _pad_to_fixed_size(self, batch: Batch) -> Batch:
        sides = zip((batch.source, batch.target), self._largest_batch, strict=True)
        source, target = (self._fixed_size(side.tokens.shape[0], largest) for side, largest in sides)
        padded = pad_to_size(batch, source, target, self._longest)
        return padded.pinned() if torch.cuda.is_available() else padded

    def _fixed_size(self, tokens: int, largest_batch: int) -> int:
        """The size that a side with `tokens` tokens is padded to."""
        most = max(self.micro_batch_tokens, self._longest)
        # A share hardly ever exceeds its nominal size by more than a sentence, and a micro-batch never its even part.
        worker_tokens = round(largest_batch * self._share) + (self._longest if self._share < 1 else 0)
        count = -(-worker_tokens // most)
        expected = worker_tokens if count == 1 else min(most, -(-worker_tokens // count) + self._longest)
        step = _round_up(-(-most // SIZE_STEPS), SIZE_MULTIPLE)
        return min(_round_up(max(tokens, expected), step), _round_up(most, SIZE_MULTIPLE))

    def _to_tensors(self, pairs: Indexes, first_places: Indexes) -> Batch:
        """Packed tensors. The decoder input is the target shifted right, beginning with the start token."""
        tokens = self._pairs.gather(pairs)
        sources, labels = (torch.from_numpy(side.astype(np.int64)) for side in tokens)
        lengths = torch.from_numpy(self.lengths[pairs].astype(np.int64))  # [S, 2]
        places = torch.from_numpy(first_places)  # [S, 2]
        source = pack(sources, lengths[:, 0], places[:, 0])
        target = pack(labels, lengths[:, 1], places[:, 1])
        decoder_input = labels.roll(1)
        decoder_input[target.layout.cu_seqlens[:-1].long()] = self._tokenizer.decoder_start_id
        return Batch(source, Packed(decoder_input, target.layout), labels)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class BatchStream:
    """This worker's batches, prefetched in a thread. Open it again when the position or the shares change."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._prefetcher: Prefetcher[WorkerBatch] | None = None

    @property
    def is_open(self) -> bool:
        return self._prefetcher is not None

    def open(self, position: Position, shares: Sequence[float], rank: int) -> None:
        self.close()
        self._prefetcher = Prefetcher(self._loader.batches(position, shares, rank), PREFETCHED_BATCHES)

    def __next__(self) -> WorkerBatch:
        assert self._prefetcher is not None
        return next(self._prefetcher)

    def close(self) -> None:
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None

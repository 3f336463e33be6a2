"""Token files that are opened, not read: pairs of sentences in memory-mapped shards.

A split is a folder of shards. Shard `00000` is two files: `00000.tokens`, all its tokens one after the other, and
`00000.offsets`, where each side of each pair begins (int64, one more than twice the pairs): pair i is
`tokens[offsets[2i]:offsets[2i+1]]` and `tokens[offsets[2i+1]:offsets[2i+2]]`. Both sides end in the end mark.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.errors import DragomanError
from dragoman.files import replacing

Tokens = npt.NDArray[np.unsignedinteger]
OFFSET = np.dtype("<i8")
_GATHER_PAIRS = 16384


def write_shard(folder: Path, index: int, pieces: Iterable[Tokens], lengths: npt.NDArray[np.int32]) -> None:
    """Write one shard: the tokens of all pairs in order, piece by piece, and the `lengths` [pairs, 2].

    The offsets come last: a shard that has them is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    offsets = np.zeros(lengths.size + 1, OFFSET)
    np.cumsum(lengths.reshape(-1), out=offsets[1:])
    with replacing(folder / f"{index:05d}.tokens") as path, path.open("wb") as file:
        for piece in pieces:
            piece.astype(piece.dtype.newbyteorder("<"), copy=False).tofile(file)
    with replacing(folder / f"{index:05d}.offsets") as path:
        offsets.tofile(path)


class Pairs:
    """The pairs of one split, by number."""

    def __init__(self, folder: Path, dtype: np.dtype[np.unsignedinteger]) -> None:
        paths = sorted(folder.glob("*.offsets"))
        if not paths:
            raise DragomanError(f"{folder} holds no shards: prepare the data set again.")
        try:
            self._offsets = [np.memmap(path, OFFSET, mode="r") for path in paths]
            self._tokens = [np.memmap(path.with_suffix(".tokens"), dtype, mode="r") for path in paths]
        except (OSError, ValueError) as error:
            raise DragomanError(f"{folder} is damaged ({error}): prepare the data set again.") from None
        for path, offsets, tokens in zip(paths, self._offsets, self._tokens, strict=True):
            if len(offsets) % 2 == 0 or len(tokens) < offsets[-1]:
                raise DragomanError(f"{path.with_suffix('')}.* are cut short: prepare the data set again, or copy it.")
        counts = [len(offsets) // 2 for offsets in self._offsets]
        self._first = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        """Both sides of a pair, as views of the file."""
        shard = int(np.searchsorted(self._first, index, side="right")) - 1
        offsets = self._offsets[shard]
        place = 2 * (index - int(self._first[shard]))
        start, middle, end = offsets[place : place + 3].tolist()
        tokens = self._tokens[shard]
        return tokens[start:middle], tokens[middle:end]

    def gather(self, indexes: npt.NDArray[np.int64]) -> tuple[Tokens, Tokens]:
        """The tokens of many pairs, one pair after the other: all sources, and all targets."""
        shards = np.searchsorted(self._first, indexes, side="right") - 1
        found = [(shard, np.flatnonzero(shards == shard)) for shard in np.unique(shards)]
        sides: list[Tokens] = []
        for side in (0, 1):
            starts, sizes = np.empty_like(indexes), np.empty_like(indexes)
            for shard, rows in found:
                places = 2 * (indexes[rows] - self._first[shard]) + side
                offsets = self._offsets[shard]
                starts[rows] = offsets[places]
                sizes[rows] = offsets[places + 1] - starts[rows]
            ends = np.cumsum(sizes)
            tokens = np.empty(ends[-1], self._tokens[0].dtype)
            for shard, rows in found:
                tokens[_spans((ends - sizes)[rows], sizes[rows])] = self._tokens[shard][
                    _spans(starts[rows], sizes[rows])
                ]
            sides.append(tokens)
        return sides[0], sides[1]

    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each side of every pair, [pairs, 2], end marks included."""
        lengths = np.empty((len(self), 2), np.int32)
        for first, offsets in zip(self._first, self._offsets, strict=False):
            part = lengths[first : first + len(offsets) // 2]
            np.subtract(offsets[1:], offsets[:-1], out=part.reshape(-1), casting="unsafe")
        return lengths


def gather_pairs(tokens: Tokens, lengths: npt.NDArray[np.int32], order: npt.NDArray[np.int64]) -> Iterator[Tokens]:
    """The tokens of pairs in another order, in pieces, so that the index into them never grows with the shard."""
    sizes = lengths.sum(axis=1, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for first in range(0, len(order), _GATHER_PAIRS):
        chosen = order[first : first + _GATHER_PAIRS]
        yield tokens[_spans(starts[chosen], sizes[chosen])]


def _spans(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers from each start on, as many as each size says, one span after the other."""
    ends = np.cumsum(sizes)
    places: npt.NDArray[np.int64] = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
    return places

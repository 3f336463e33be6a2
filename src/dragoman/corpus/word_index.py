"""Text as numbers of its distinct words: counting and encoding then look up each word of a block only once."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from dragoman.text_lines import split_lines

SIDE_END = b"\n"
"""Stands in the place of a word at the end of each side of a pair. Its number is 0."""


@dataclass(frozen=True)
class WordIndex:
    """The distinct words of some pairs, and the number of the word at each place, side by side."""

    words: list[bytes]
    numbers: npt.NDArray[np.unsignedinteger]

    @classmethod
    def from_text(cls, text: bytes) -> "WordIndex":
        """Index lines of pairs with a tab between their sides. Words are separated by single spaces."""
        numbers: defaultdict[bytes, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        numbers[SIDE_END] = 0
        sides = chain.from_iterable(line.split(b"\t") for line in split_lines(text))
        places = chain.from_iterable((side + b" \n").split(b" ") for side in sides)
        found = np.fromiter(map(numbers.__getitem__, places), np.uint32)
        return cls(list(numbers), found.astype(np.min_scalar_type(len(numbers)), copy=False))

    @property
    def side_ends(self) -> npt.NDArray[np.int64]:
        """The place after the last word of each side."""
        return np.flatnonzero(self.numbers == 0)

    def count(self, pairs: npt.NDArray[np.bool_]) -> Counter[bytes]:
        """Word counts of the pairs that the mask selects, both sides together."""
        pair_sizes = np.diff(self.side_ends[1::2], prepend=-1)
        counts = np.bincount(self.numbers[np.repeat(pairs, pair_sizes)], minlength=len(self.words))
        counts[0] = 0
        present = np.flatnonzero(counts)
        return Counter(dict(zip(map(self.words.__getitem__, present.tolist()), counts[present].tolist(), strict=True)))

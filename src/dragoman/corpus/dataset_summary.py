"""Statistics of a data set, as `dragoman inspect` shows them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.corpus.dataset import SPLITS, DataSet

MAX_BUCKETS = 12
BUCKET_WIDTHS = (1, 2, 5, 10, 20, 50, 100, 1000, 10000)


def histogram(lengths: npt.NDArray[np.int32]) -> list[tuple[str, int]]:
    """Sentences by number of tokens, in at most 12 buckets of equal, round width; the last one is open-ended."""
    typical = float(np.quantile(lengths, 0.995))
    width = next(width for width in BUCKET_WIDTHS if typical <= width * MAX_BUCKETS)
    counts = np.bincount(np.minimum(lengths // width, MAX_BUCKETS - 1), minlength=1)
    first = int(np.flatnonzero(counts)[0])
    labels = [f"{bucket * width}-{bucket * width + width - 1}" for bucket in range(MAX_BUCKETS - 1)]
    labels.append(f"{(MAX_BUCKETS - 1) * width}+")
    return [(labels[bucket], int(counts[bucket])) for bucket in range(first, len(counts))]


def as_json(data: DataSet) -> dict[str, Any]:
    """The manifest, with the length histograms of each split."""
    lengths = {split: data.pairs(split).lengths() for split in SPLITS if split in data.manifest.splits}
    return {
        **data.manifest.to_json(),
        "lengths": {
            split: {
                side: dict(histogram(lengths[split][:, number])) for number, side in enumerate(("source", "target"))
            }
            for split in lengths
        },
    }

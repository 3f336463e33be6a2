"""Selection of pairs after cleaning: duplicates, held-out validation and test pairs, and the tokenizer's sample."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from dragoman.corpus.block_tasks import (
    Mask,
    PreparationJob,
    SourceBlock,
    TextPairs,
    as_line,
    load_hashes,
    load_pairs,
)
from dragoman.corpus.cleaning import SAMPLES_PER_RULE, Cleaner, RuleCount
from dragoman.corpus.deduplication import Hashes, hash_line, hashes_from, mark_duplicates, random_keys
from dragoman.progress_callback import Progress

MAX_HELD_OUT_FRACTION = 0.1
Purpose = Literal["valid", "test", "tokenizer"]
_RANDOM_STREAM: dict[Purpose, int] = {"valid": 0, "test": 1, "tokenizer": 2}


def drop_duplicates(
    job: PreparationJob, blocks: Sequence[SourceBlock], evaluation: Mapping[str, TextPairs], progress: Progress
) -> tuple[list[Mask], list[RuleCount]]:
    """Masks of the pairs to keep, and counts of the duplicates in each block.

    The first of equal pairs is kept, and none that is in the validation or test set. Without the rule `duplicate` in
    the settings, all pairs are kept.
    """
    keep = [np.ones(block.cleaned.pairs, np.bool_) for block in blocks]
    counts = [RuleCount() for _ in blocks]
    if not job.uses("duplicate"):
        return keep, counts
    evaluation_hashes = _hash_evaluation(job, evaluation)

    def load(block: int) -> Hashes:
        return evaluation_hashes if block == 0 else load_hashes(job, block - 1)

    pair_counts = [len(evaluation_hashes), *(block.cleaned.pairs for block in blocks)]
    is_repeated = mark_duplicates(pair_counts, load)[len(evaluation_hashes) :]
    first = sample_count = 0
    for index, block in enumerate(blocks):
        repeated = is_repeated[first : first + block.cleaned.pairs]
        first += block.cleaned.pairs
        keep[index] &= ~repeated
        counts[index].pairs = int(repeated.sum())
        if counts[index].pairs and sample_count < SAMPLES_PER_RULE:
            pairs = load_pairs(job, index)
            counts[index].samples = [pairs[pair] for pair in np.flatnonzero(repeated)[:SAMPLES_PER_RULE]]
            sample_count += len(counts[index].samples)
        progress("Dropping duplicates", index + 1, len(blocks))
    return keep, counts


def _hash_evaluation(job: PreparationJob, evaluation: Mapping[str, TextPairs]) -> Hashes:
    cleaner = Cleaner(job.settings.cleaning, job.languages)
    digests = [hash_line(as_line(*cleaner.normalize(*pair))) for pairs in evaluation.values() for pair in pairs]
    return hashes_from(b"".join(digests))


def hold_out(
    job: PreparationJob, keep: Sequence[Mask], evaluation: Mapping[str, TextPairs], is_synthetic: Sequence[bool]
) -> dict[str, list[list[int]]]:
    """For each missing evaluation set, take pairs out of `keep`; return their positions by split and block.

    Pairs of blocks that a model wrote are taken only if there are no others: scores are to be those of real text.
    """
    eligible = [index for index, synthetic in enumerate(is_synthetic) if not synthetic or all(is_synthetic)]
    total = sum(int(keep[index].sum()) for index in eligible)
    held_out: dict[str, list[list[int]]] = {}
    splits: tuple[Purpose, ...] = ("valid", "test")
    for split in splits:
        wanted = min(getattr(job.settings.corpus, f"{split}_pairs"), int(total * MAX_HELD_OUT_FRACTION))
        held_out[split] = [[] for _ in keep]
        if evaluation[split] or not wanted:
            continue
        limit = (2 * wanted + 100) / total  # Gives enough candidates without sorting all pairs.
        candidates: list[tuple[float, int, int]] = []
        for index in eligible:
            keys = _random_keys(job, index, split)
            positions = np.flatnonzero(keep[index] & (keys < limit))
            candidates += [(float(keys[position]), index, int(position)) for position in positions]
        for index, position in sorted((index, position) for _, index, position in sorted(candidates)[:wanted]):
            keep[index][position] = False
            held_out[split][index].append(position)
    return held_out


def sample_pairs(job: PreparationJob, block: int, keep: Mask, fraction: float) -> Mask:
    """A random fraction of the kept pairs of a block, to train the tokenizer on."""
    return keep & (_random_keys(job, block, "tokenizer") < fraction)


def _random_keys(job: PreparationJob, block: int, purpose: Purpose) -> npt.NDArray[np.float64]:
    """A reproducible random number in [0, 1) for each pair, from its text, the seed and the purpose alone."""
    return random_keys(load_hashes(job, block), [job.settings.corpus.seed, _RANDOM_STREAM[purpose]])

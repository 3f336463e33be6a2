"""A few real training passes of a recipe's model on this machine, with sentences that nobody wrote."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

import numpy as np
import psutil
import torch

from dragoman.batching.data_loader import DataLoader, Position
from dragoman.corpus.shards import Pairs
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import flatten, unflatten_into
from dragoman.doctor.measurements import StepBenchmark
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision, micro_tokens, replays
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.settings import Settings
from dragoman.telemetry.sensors import driver_version, nominal_speeds
from dragoman.training.optimizer import Optimizer
from dragoman.training.train_step import TrainStep

LONG_S = 1.0
"""Passes grow until one takes this long, or is as large as a worker's share."""
FIRST_TOKENS = 256
REPEATS, ENOUGH_S = 4, 1.5
"""Passes of a size are repeated so often at least, and until they have taken so long."""
MOST_FIXED = 0.5
"""Of a pass's time, however the measured times are scattered."""
SENTENCES, LONGEST = 20_000, 130
RATE = 1e-6
"""Small: what is learnt here is thrown away."""


class SyntheticPairs:
    """Sentences of random tokens, as long as those of a data set, or of the news."""

    decoder_start_id = 1

    def __init__(self, vocabulary: int, lengths: Sequence[tuple[int, int]] = ()) -> None:
        self._random = np.random.default_rng(1)
        self._vocabulary = vocabulary
        self._lengths = self._draw(lengths) if lengths else self._of_news()

    def _draw(self, lengths: Sequence[tuple[int, int]]) -> Any:
        return self._random.choice(np.array(lengths, np.int32), SENTENCES)

    def _of_news(self) -> Any:
        drawn = self._random.lognormal(3.1, 0.5, SENTENCES)
        source = np.clip(drawn, 4, LONGEST).astype(np.int32)
        target = np.clip(drawn * self._random.normal(1.05, 0.1, SENTENCES), 4, LONGEST).astype(np.int32)
        return np.stack([source, target], axis=1)

    def lengths(self) -> Any:
        return self._lengths

    def gather(self, pairs: Any) -> tuple[Any, Any]:
        counts = self._lengths[pairs].sum(axis=0)
        source, target = (self._random.integers(4, self._vocabulary, count, dtype=np.uint32) for count in counts)
        return source, target


def try_out(settings: Settings, workers: int = 1, lengths: Sequence[tuple[int, int]] = ()) -> StepBenchmark:
    """Train a few passes as one of so many workers, and throw away what was learnt."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cluster = Cluster(0, 1, 1, device)
    try:
        return _try_out(settings, cluster, workers, lengths)
    finally:
        cluster.close()


def _try_out(settings: Settings, cluster: Cluster, workers: int, lengths: Sequence[tuple[int, int]]) -> StepBenchmark:
    device = cluster.device
    architecture = Architecture(vocabulary=settings.tokenizer.vocabulary_size, **settings.model.model_dump())
    imagined = SyntheticPairs(architecture.vocabulary, lengths)
    longest = int(imagined.lengths().max())
    model = Transformer(architecture).to(device)
    precision = Precision.choose(settings, device)
    most = max(micro_tokens(settings, architecture, device, 1), longest)
    share = max(longest, min(most, settings.batch.tokens // workers))
    # A GPU compiles for each size: it is tried with the one that it will be used with.
    tokens = max(longest, min(FIRST_TOKENS, share)) if device.type == "cpu" else most
    passes: list[tuple[float, float]] = []
    while True:
        passes.append(_time_passes(settings, cluster, model, precision, imagined, tokens))
        if passes[-1][1] >= LONG_S or tokens >= share:
            break
        tokens = min(share, 4 * tokens)
    pass_s, tokens_per_s = split_pass(passes[-2:])
    return StepBenchmark(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        gpus=torch.cuda.device_count(),
        driver=driver_version(),
        torch=torch.__version__,
        tokens_per_s=tokens_per_s,
        pass_s=pass_s,
        update_s=_time_update(settings, model, device),
        copy_s=_time_copies(model, device),
        piece_tokens=most,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        memory_bytes=_memory_bytes(device),
        free_disk_bytes=shutil.disk_usage(Path.cwd()).free,
        nominal_bits_per_s=nominal_speeds(),
    )


def _time_passes(
    settings: Settings,
    cluster: Cluster,
    model: Transformer,
    precision: Precision,
    imagined: SyntheticPairs,
    tokens: int,
) -> tuple[float, float]:
    """Source and target tokens of a pass, and its time, both on average."""
    fixed = replays(precision, model.architecture, cluster.device)
    feed = DataLoader(
        cast(Pairs, imagined), cast(Tokenizer, imagined), tokens, settings.batch.seed, tokens, fixed_sizes=fixed
    )
    train_step = TrainStep(model, feed, precision, settings.training, cluster.device, lambda _: None)
    shares = feed.batches(Position(), [1.0], 0)
    spans: list[float] = []
    seen: list[int] = []
    while len(spans) <= REPEATS or sum(spans) < ENOUGH_S:
        started = time.perf_counter()
        share = next(shares)
        if cluster.device.type == "cuda":  # Batches are made beside it; a processor's threads must make them as well.
            started = time.perf_counter()
        train_step(share, len(spans) + 1, 0)
        _finish(cluster.device)
        spans.append(time.perf_counter() - started)
        seen.append(share.source_tokens + share.target_tokens)
        model.zero_grad()
    return fmean(seen[1:]), fmean(spans[1:])  # The first one is cold.


def split_pass(passes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What a pass takes whatever its size, and tokens a second beyond that, from tokens and times of one or two."""
    tokens, spent_s = passes[-1]
    fewer, less_s = passes[0]
    if spent_s <= less_s or tokens <= fewer:
        return 0.0, tokens / spent_s
    tokens_per_s = (tokens - fewer) / (spent_s - less_s)
    pass_s = min(max(0.0, spent_s - tokens / tokens_per_s), MOST_FIXED * spent_s)
    return pass_s, tokens / (spent_s - pass_s)


def _time_copies(model: Transformer, device: torch.device) -> float:
    """Putting all gradients into one message, and taking them out again."""
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    return _usual_time(lambda: unflatten_into(flatten(gradients), gradients), device)


def _time_update(settings: Settings, model: Transformer, device: torch.device) -> float:
    updater = Optimizer(model, settings.optimizer)
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient

    def update() -> None:
        torch.nn.utils.get_total_norm(gradients)
        updater.step(RATE)

    return _usual_time(update, device)


def _usual_time(work: Callable[[], None], device: torch.device) -> float:
    spans = []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        work()
        _finish(device)
        spans.append(time.perf_counter() - started)
    return median(spans[1:])  # The first one is cold.


def _memory_bytes(device: torch.device) -> int:
    on_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).total_memory if on_gpu else psutil.virtual_memory().total


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Read a recipe and its changes from the standard input, and write what was found."""
    job = json.load(sys.stdin)
    # As many threads as a worker will have beside its neighbours.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // job["workers"]))
    settings = resolve(job["recipe"], job["overrides"]).settings
    print(json.dumps(asdict(try_out(settings, job["all_workers"], job["lengths"]))))


if __name__ == "__main__":
    main()

"""Benchmark a training step of a recipe on this machine, with synthetic pairs."""

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
from dragoman.distributed.exchange.powersgd import PowerSgd
from dragoman.doctor.measurements import StepBenchmark
from dragoman.model.architecture import Architecture
from dragoman.model.cuda_graph import uses_cuda_graphs
from dragoman.model.memory_budget import choose_micro_batch_tokens
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.settings import Settings
from dragoman.telemetry.sensors import driver_version, nominal_speeds
from dragoman.training.optimizer import Optimizer
from dragoman.training.train_step import TrainStep

LONG_S = 1.0
"""Batches grow until a pass takes this long, or until they are as large as a worker's share."""
FIRST_TOKENS = 256
GROWTH = 4
"""Factor between the sizes of successive batches."""
REPEATS, ENOUGH_S = 4, 1.5
"""Passes of one size are repeated at least this often, and until they have taken this long together."""
MAX_FIXED = 0.5
"""Largest part of a pass that is taken to be fixed cost: measured times scatter."""
SENTENCES, LONGEST = 20_000, 130
LEARNING_RATE = 1e-6
"""Small: the trained weights are discarded."""


class SyntheticPairs:
    """Pairs of random tokens, with the sentence lengths of a data set or of news text."""

    decoder_start_id = 1

    def __init__(self, vocabulary: int, lengths: Sequence[tuple[int, int]] = ()) -> None:
        self._random = np.random.default_rng(1)
        self._vocabulary = vocabulary
        self._lengths = self._sample(lengths) if lengths else self._sample_news()

    def _sample(self, lengths: Sequence[tuple[int, int]]) -> Any:
        return self._random.choice(np.array(lengths, np.int32), SENTENCES)

    def _sample_news(self) -> Any:
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


def benchmark(settings: Settings, workers: int = 1, lengths: Sequence[tuple[int, int]] = ()) -> StepBenchmark:
    """Train a few steps as one of `workers` workers, and discard the weights."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cluster = Cluster(0, 1, 1, device)
    try:
        return _benchmark(settings, cluster, workers, lengths)
    finally:
        cluster.close()


def _benchmark(settings: Settings, cluster: Cluster, workers: int, lengths: Sequence[tuple[int, int]]) -> StepBenchmark:
    device = cluster.device
    architecture = Architecture(vocabulary=settings.tokenizer.vocabulary_size, **settings.model.model_dump())
    pairs = SyntheticPairs(architecture.vocabulary, lengths)
    longest = int(pairs.lengths().max())
    model = Transformer(architecture).to(device)
    precision = Precision.choose(settings, device)
    most = max(choose_micro_batch_tokens(settings, architecture, device, 1), longest)
    share = max(longest, min(most, settings.batch.tokens // workers))
    # A GPU compiles for each size: it is benchmarked only with the one that training will use.
    tokens = max(longest, min(FIRST_TOKENS, share)) if device.type == "cpu" else most
    passes: list[tuple[float, float]] = []
    while True:
        passes.append(_time_passes(settings, cluster, model, precision, pairs, tokens))
        if passes[-1][1] >= LONG_S or tokens >= share:
            break
        tokens = min(share, GROWTH * tokens)
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
        compress_s=_time_compression(settings, model, cluster),
        micro_tokens=most,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=[(each.shape[0], each.shape[1]) for each in model.parameters() if each.ndim == 2],
        memory_bytes=_memory_bytes(device),
        free_disk_bytes=shutil.disk_usage(Path.cwd()).free,
        nominal_bits_per_s=nominal_speeds(),
    )


def _time_passes(
    settings: Settings,
    cluster: Cluster,
    model: Transformer,
    precision: Precision,
    pairs: SyntheticPairs,
    tokens: int,
) -> tuple[float, float]:
    """Source and target tokens of a forward and backward pass, and its time, both on average."""
    fixed = uses_cuda_graphs(precision, model.architecture, cluster.device)
    loader = DataLoader(
        cast(Pairs, pairs), cast(Tokenizer, pairs), tokens, settings.batch.seed, tokens, fixed_sizes=fixed
    )
    train_step = TrainStep(model, loader, precision, settings.training, cluster.device, lambda _: None)
    batches = loader.batches(Position(), [1.0], 0)
    times_s: list[float] = []
    counts: list[int] = []
    while len(times_s) <= REPEATS or sum(times_s) < ENOUGH_S:
        started = time.perf_counter()
        batch = next(batches)
        if cluster.device.type == "cuda":  # Batches are made while the GPU computes; a CPU's threads do both.
            started = time.perf_counter()
        train_step(batch, len(times_s) + 1)
        _synchronize(cluster.device)
        times_s.append(time.perf_counter() - started)
        counts.append(batch.source_tokens + batch.target_tokens)
        model.zero_grad()
    return fmean(counts[1:]), fmean(times_s[1:])  # The first pass is slower: it warms up.


def split_pass(passes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fixed cost of a pass, and tokens per second beyond it, from the tokens and times of one or two passes."""
    tokens, spent_s = passes[-1]
    fewer, less_s = passes[0]
    if spent_s <= less_s or tokens <= fewer:
        return 0.0, tokens / spent_s
    tokens_per_s = (tokens - fewer) / (spent_s - less_s)
    pass_s = min(max(0.0, spent_s - tokens / tokens_per_s), MAX_FIXED * spent_s)
    return pass_s, tokens / (spent_s - pass_s)


def _time_copies(model: Transformer, device: torch.device) -> float:
    """Copying all gradients into one message and back."""
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    return _median_time(lambda: unflatten_into(flatten(gradients), gradients), device)


def _time_compression(settings: Settings, model: Transformer, cluster: Cluster) -> float:
    """PowerSGD's factors and their product, without an exchange."""
    gradients = [torch.randn_like(parameter) for parameter in model.parameters() if parameter.ndim == 2]
    compress, no_stats = PowerSgd(settings.exchange.powersgd_rank), torch.zeros(1, device=cluster.device)
    with torch.no_grad():
        return _median_time(lambda: compress(cluster, no_stats, gradients), cluster.device)


def _time_update(settings: Settings, model: Transformer, device: torch.device) -> float:
    optimizer = Optimizer(model, settings.optimizer)
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient

    def update() -> None:
        torch.nn.utils.get_total_norm(gradients)
        optimizer.step(LEARNING_RATE)

    return _median_time(update, device)


def _median_time(work: Callable[[], object], device: torch.device) -> float:
    times_s = []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        work()
        _synchronize(device)
        times_s.append(time.perf_counter() - started)
    return median(times_s[1:])  # The first is slower: it warms up.


def _memory_bytes(device: torch.device) -> int:
    on_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).total_memory if on_gpu else psutil.virtual_memory().total


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Read a job from standard input, and write the result to standard output, both as JSON."""
    job = json.load(sys.stdin)
    # As many threads as a worker will have beside the others of its machine.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // job["workers"]))
    settings = resolve(job["recipe"], job["overrides"]).settings
    print(json.dumps(asdict(benchmark(settings, job["all_workers"], job["lengths"]))))


if __name__ == "__main__":
    main()

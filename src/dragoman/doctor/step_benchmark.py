"""Benchmark the training steps of a recipe on this machine: it trains as `dragoman train` does, for a few seconds."""

import contextlib
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import psutil
import torch

from dragoman.batching.batch_plan import plan_epoch
from dragoman.corpus.data_mixture import open_data
from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import flatten, unflatten_into
from dragoman.distributed.exchange.powersgd import PowerSgd
from dragoman.doctor.machine_load import available_cores, read_gpu_use
from dragoman.doctor.measurements import BenchmarkRequest, StepBenchmark
from dragoman.doctor.step_windows import StepEstimate, StepWindows, summarize
from dragoman.doctor.synthetic_data import MIN_PAIRS, SyntheticDataSet
from dragoman.event_log import EventLog
from dragoman.events import Event, MicroBatchesSplit, RunStarted, StepDone
from dragoman.launch.local_launcher import default_workers, worker_threads
from dragoman.model.architecture import Architecture
from dragoman.model.memory_budget import (
    USABLE_SHARE,
    MemoryUse,
    activation_bytes,
    choose_micro_batch_tokens,
    device_memory_bytes,
    peak_memory_bytes,
    worker_memory_bytes,
)
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.sensors import driver_version, nominal_speeds
from dragoman.training.evaluation import TranslationScorer
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.stop_signal import StopSignal
from dragoman.training.worker import train_and_record

NEVER = 10**9
"""A step that no benchmark reaches."""
LONG_S = 1.0
"""On a CPU, batches grow until a step takes this long, or until they are as large as a worker's share."""
FIRST_TOKENS, QUICK_TOKENS = 256, 1024
"""Size of the first batches on a CPU, and of all that a quick benchmark tries there."""
GROWTH = 4
"""Factor between the sizes of successive batches."""
GROWING_WINDOWS = 2
"""Windows that suffice for a size after which a larger one follows, and for a quick benchmark."""
MAX_S = {"cpu": 14.0, "cuda": 10.0}
"""Windows that scatter are repeated until they have taken this long together."""
REPEATS = 4
MAX_FIXED = 0.5
"""Largest part of a pass that is taken to be fixed cost: measured times scatter."""


class BenchmarkDone(BaseException):
    """Ends a training run at once, without a checkpoint. Training handles every `Exception` as a failure."""


class BenchmarkSink:
    """Watches a training run until its steps are known well enough."""

    def __init__(self, device: torch.device, is_enough: Callable[[StepWindows], bool]) -> None:
        self._device, self._is_enough = device, is_enough
        self._on_gpu = device.type == "cuda"
        self.windows = StepWindows(on_gpu=self._on_gpu, cores=available_cores())
        self.micro_batches_split = False
        self.start_peak_bytes = self.peak_bytes = self.fixed_bytes = 0
        """Memory: peak before the first step, peak of the steps, and what stays allocated between them."""

    def record(self, event: Event) -> None:
        if isinstance(event, RunStarted) and self._on_gpu:
            self.start_peak_bytes = peak_memory_bytes(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        self.micro_batches_split |= isinstance(event, MicroBatchesSplit)
        if isinstance(event, StepDone):
            self.windows.add(event)
            if self._is_enough(self.windows):
                self.peak_bytes = peak_memory_bytes(self._device)
                self.fixed_bytes = torch.cuda.memory_allocated(self._device) if self._on_gpu else 0
                raise BenchmarkDone

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Trial:
    """Steps of one size, and their memory."""

    batch_tokens: int
    step: StepEstimate
    peak_bytes: int
    memory: MemoryUse
    micro_batches_split: bool


class StepTrials:
    """Trains as one of several workers, with batches of any size."""

    def __init__(self, settings: Settings, data: DataSet | SyntheticDataSet, cluster: Cluster, workers: int) -> None:
        """`workers` are all of the run; the cluster has those of this machine."""
        self._settings, self._data, self._cluster = settings, data, cluster
        self.architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
        pairs = data.pairs("train")
        lengths = pairs.lengths()
        longest = int(lengths.max())
        self.micro_tokens = max(
            longest,
            choose_micro_batch_tokens(settings, self.architecture, cluster.device, cluster.local_world_size),
        )
        self.share = max(longest, settings.batch.tokens // workers)
        seed = settings.batch.seed
        plan = plan_epoch(lengths, max(longest, settings.batch.tokens), seed, 0, pairs.of_epoch(0, seed))
        self.step_tokens = float(lengths[plan.order].sum(dtype="int64")) / len(plan)
        """Source and target tokens of a global batch, on average."""
        self._longest = longest

    def run(self, *, quick: bool) -> list[Trial]:
        """Batches of growing size; a GPU compiles for each size, so there only the one that training will use."""
        if self._cluster.device.type == "cuda":
            stance = torch.compiler.set_stance("force_eager") if quick else contextlib.nullcontext()
            with stance:
                return [self._try(self.share, quick=quick)]
        size = max(self._longest, min(QUICK_TOKENS if quick else FIRST_TOKENS, self.share))
        trials = [self._try(size, quick=quick)]
        while not quick and trials[-1].step.step_s < LONG_S and size < self.share:
            size = min(self.share, GROWTH * size)
            trials.append(self._try(size))
        return trials

    def _try(self, batch_tokens: int, *, quick: bool = False) -> Trial:
        device = self._cluster.device
        grows = device.type == "cpu" and batch_tokens < self.share

        def is_enough(measured: StepWindows) -> bool:
            steps = sum(window.steps for window in measured.windows)
            if len(measured.windows) >= GROWING_WINDOWS and (quick or (grows and measured.elapsed_s < LONG_S * steps)):
                return True
            return measured.agree or (len(measured.windows) > 1 and measured.elapsed_s > MAX_S[device.type])

        sink = BenchmarkSink(device, is_enough)
        self._train(self._sized(batch_tokens), sink)
        peak_bytes = max(sink.start_peak_bytes, sink.peak_bytes)
        tokens = min(batch_tokens, self.micro_tokens)
        token_bytes = (sink.peak_bytes - sink.fixed_bytes) / tokens
        if device.type == "cpu":  # Libraries and caches are in the peak, too: activations can only be estimated.
            token_bytes = activation_bytes(self.architecture)
        memory = MemoryUse(sink.peak_bytes - tokens * token_bytes, token_bytes)
        return Trial(batch_tokens, summarize(sink.windows.windows), peak_bytes, memory, sink.micro_batches_split)

    def _sized(self, batch_tokens: int) -> Settings:
        """Settings of a run without an end, with batches of this size, and without evaluations and checkpoints."""
        changes: dict[str, dict[str, Any]] = {
            "batch": {"tokens": batch_tokens},
            "training": {"steps": NEVER, "micro_batch_tokens": self.micro_tokens, "shares": "equal"},
            "evaluation": {"every": NEVER},
            "checkpoint": {"every": NEVER},
            "exchange": {"method": "plain"},
            "telemetry": {"trackers": ()},
        }
        sections = {name: getattr(self._settings, name).model_copy(update=each) for name, each in changes.items()}
        return self._settings.model_copy(update=sections)

    def _train(self, settings: Settings, sink: BenchmarkSink) -> None:
        """Train as `dragoman train` does, until the sink has seen enough. The trained weights are discarded."""
        with tempfile.TemporaryDirectory(prefix="dragoman-doctor-") as folder:
            run = RunFolder(Path(folder) / "run")
            run.path.mkdir()
            recorder = EventRecorder(run, EventLog(run.events_of(0)), self._cluster, lambda: [sink], settings)
            data, no_scorer = cast(DataSet, self._data), cast(TranslationScorer, None)
            with contextlib.suppress(BenchmarkDone):
                train_and_record(settings, data, run, self._cluster, no_scorer, recorder, StopSignal())
        gc.collect()  # Otherwise the memory of this run would be missing, or count, in what follows.
        if self._cluster.device.type == "cuda":
            torch.cuda.empty_cache()


def benchmark(
    settings: Settings,
    data: DataSet | SyntheticDataSet,
    local_workers: int = 1,
    workers: int = 1,
    *,
    quick: bool = False,
) -> StepBenchmark:
    """Train a few seconds as one of `workers` workers, of which this machine has `local_workers`."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    other_gpu_use = read_gpu_use(device)
    cluster = Cluster(0, 1, local_workers, device)
    try:
        started_at = time.perf_counter()
        trials = StepTrials(settings, data, cluster, workers)
        tried = trials.run(quick=quick)
        # Several micro-batches have the fixed cost of a pass each: it is then part of the time for a token.
        splits = trials.share > trials.micro_tokens or len(tried) == 1
        passes = [(each.step.tokens, each.step.compute_s) for each in (tried[-1:] if splits else tried[-2:])]
        pass_s, tokens_per_s = split_pass(passes)
        last, gradients = tried[-1], _make_gradients(trials.architecture, device)
        share_tokens = trials.step_tokens / workers
        step_s = pass_s + share_tokens / tokens_per_s + last.step.update_s
        return StepBenchmark(
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
            gpus=torch.cuda.device_count(),
            driver=driver_version(),
            torch=torch.__version__,
            step_tokens_per_s=share_tokens / step_s,
            tokens_per_s=tokens_per_s,
            pass_s=pass_s,
            update_s=last.step.update_s,
            fastest=last.step.fastest,
            slowest=last.step.slowest,
            step_tokens=trials.step_tokens,
            cores=len(os.sched_getaffinity(0)),
            other_cores=last.step.other_cores,
            other_gpu_use=other_gpu_use,
            copy_s=_time_copies(gradients, device),
            compress_s=_time_compression(settings, gradients, cluster),
            micro_tokens=trials.micro_tokens,
            micro_batches_split=last.micro_batches_split,
            parameters=sum(gradient.numel() for gradient in gradients),
            matrices=[(each.shape[0], each.shape[1]) for each in gradients if each.ndim == 2],
            memory_bytes=device_memory_bytes(device),
            memory_peak_bytes=_predict_peak(last, trials),
            largest_micro_batch_tokens=last.memory.most_tokens(_usable_bytes(device, local_workers)),
            free_disk_bytes=shutil.disk_usage(Path.cwd()).free,
            nominal_bits_per_s=nominal_speeds(),
            benchmark_s=time.perf_counter() - started_at,
        )
    finally:
        cluster.close()


def _predict_peak(last: Trial, trials: StepTrials) -> int:
    """Peak memory with the batches of the run, which may be larger than those that a CPU has tried."""
    return int(max(last.peak_bytes, last.memory.peak_bytes(min(trials.share, trials.micro_tokens))))


def _usable_bytes(device: torch.device, workers: int) -> float:
    """Memory that training may use: on a machine without a GPU, what other programs leave."""
    usable = USABLE_SHARE * worker_memory_bytes(device, workers)
    if device.type == "cuda":
        return usable
    return min(usable, psutil.virtual_memory().available / workers + psutil.Process().memory_info().rss)


def split_pass(passes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fixed cost of a pass, and tokens per second beyond it, from the tokens and times of one or two passes."""
    tokens, spent_s = passes[-1]
    fewer, less_s = passes[0]
    if spent_s <= less_s or tokens <= fewer:
        return 0.0, tokens / spent_s
    tokens_per_s = (tokens - fewer) / (spent_s - less_s)
    pass_s = min(max(0.0, spent_s - tokens / tokens_per_s), MAX_FIXED * spent_s)
    return pass_s, tokens / (spent_s - pass_s)


def _make_gradients(architecture: Architecture, device: torch.device) -> list[torch.Tensor]:
    """Random gradients of a model."""
    with torch.device("meta"):  # Only the shapes are needed.
        model = Transformer(architecture)
    return [torch.randn(parameter.shape, device=device) for parameter in model.parameters()]


def _time_copies(gradients: Sequence[torch.Tensor], device: torch.device) -> float:
    """Copying all gradients into one message and back."""
    return _shortest_time(lambda: unflatten_into(flatten(gradients), gradients), device)


def _time_compression(settings: Settings, gradients: Sequence[torch.Tensor], cluster: Cluster) -> float:
    """PowerSGD's factors and their product, without an exchange."""
    matrices = [gradient for gradient in gradients if gradient.ndim == 2]
    compress, no_stats = PowerSgd(settings.exchange.powersgd_rank), torch.zeros(1, device=cluster.device)
    with torch.no_grad():
        return _shortest_time(lambda: compress(cluster, no_stats, matrices), cluster.device)


def _shortest_time(work: Callable[[], object], device: torch.device) -> float:
    times_s = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - started)
    return min(times_s)


def run_request(request: BenchmarkRequest, local_workers: int | None, workers: Sequence[int | None]) -> StepBenchmark:
    """Benchmark on this machine. `workers` are those of all machines; None is one per GPU, as many as here."""
    here = local_workers or default_workers()
    # As many threads as a worker will have beside the others of its machine.
    torch.set_num_threads(worker_threads(here))
    settings = resolve(request.recipe, request.overrides).settings
    data: DataSet | SyntheticDataSet
    if request.data and torch.cuda.is_available():
        data = open_data(request.data)
    else:  # A CPU tries batches far smaller than those of the run: planning a large corpus for them takes long.
        count = max(MIN_PAIRS, 2 * settings.batch.tokens)
        count = min(count, request.pairs) if request.pairs else count
        data = SyntheticDataSet(settings.tokenizer.vocabulary_size, request.lengths, count)
    everyone = sum(each or default_workers() for each in workers)
    return benchmark(settings, data, here, everyone, quick=request.quick)


def main() -> None:
    """Read a job from standard input, and write the result to standard output, both as JSON."""
    job = json.load(sys.stdin)
    print(json.dumps(asdict(run_request(BenchmarkRequest(**job["request"]), job["local_workers"], job["workers"]))))


if __name__ == "__main__":
    main()

"""Time and cost of a synthesis before it starts: every machine translates a sample of the text for some seconds.

With a backward model it scores the translations, too.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from dragoman.corpus.line_formats import LineReader
from dragoman.errors import DragomanError
from dragoman.launch.agents import HostLostError
from dragoman.launch.ssh import Machine
from dragoman.synthesis.synthesis_folder import SynthesisFolder
from dragoman.synthesis.synthesizer import (
    SynthesisRequest,
    check_workers,
    choose_device,
    describe,
    describe_files,
    find_models,
    find_weights,
    make_engine_folders,
    sampled_share,
)
from dragoman.synthesis.text_shards import TextShard, check_texts
from dragoman.synthesis.translation_job import TranslationJob
from dragoman.synthesis.worker_connection import EngineFiles, UnusableHostError, WorkerConnection, WorkerPlace

SAMPLE_LINES = 16384
MEASURED_S = 5.0
"""Time that a measurement must take to be trusted. Each one has twice the lines of the one before."""
FIRST_LINES = 32


@dataclass
class SynthesisEstimate:
    """Speed of the machines on a sample of the text, and what follows for all of it."""

    lines: int
    lines_per_s: dict[str, float] = field(default_factory=dict)
    """Of each machine that can be used, with all its GPUs. Scores of a backward model are included."""
    scoring_share: dict[str, float] = field(default_factory=dict)
    """Share of the time of each that goes to these scores; 0 without a backward model."""
    machines: dict[str, str] = field(default_factory=dict)
    """Engine and processor of each."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reasons why machines cannot be used."""
    price_per_hour: float | None = None
    currency: str = "USD"

    @property
    def seconds(self) -> float:
        return self.lines / sum(self.lines_per_s.values())

    @property
    def cost(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.seconds / 3600


def estimate_synthesis(request: SynthesisRequest) -> SynthesisEstimate:
    """Measure the speed of all machines at once, as they will work."""
    check_texts(request.texts)
    models = find_models(request)
    lines, sample = sample_lines(request.texts, SAMPLE_LINES)
    estimate = SynthesisEstimate(lines, currency=request.money.currency)
    device = choose_device(request)
    check_workers(request.machines, device)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(len(request.machines)) as pool:
        folder = SynthesisFolder(Path(temporary))
        weights = find_weights(request, models, folder, None)
        engines = make_engine_folders(request, models, folder, device, is_new=True)
        job = describe(request, weights, engines, (), device).job
        # As many scores as the whole text will have: of a short one, all pairs are scored with another translation too.
        job, files = replace(job, sampled_share=sampled_share(request, lines)), describe_files(engines)
        list(pool.map(lambda machine: _measure(request, machine, job, files, sample, estimate), request.machines))
    if not estimate.lines_per_s:
        problems = "; ".join(f"{host} {reason}" for host, reason in estimate.problems.items())
        raise DragomanError(f"No machine can translate: {problems}.")
    prices = request.money.price_per_hour
    if len(prices) in (1, len(request.machines)):
        estimate.price_per_hour = prices[0] * len(request.machines) if len(prices) == 1 else sum(prices)
    return estimate


def sample_lines(texts: Sequence[Path], size: int) -> tuple[int, list[str]]:
    """The number of lines, and a random sample of them, in one pass and bounded memory. Always the same sample."""
    chance, sample, lines = random.Random(1), list[bytes](), 0
    for line in _read(texts):
        lines += 1
        if len(sample) < size:
            sample.append(line)
        elif (place := chance.randrange(lines)) < size:
            sample[place] = line
    if not sample:
        raise DragomanError(f"{' and '.join(map(str, texts))} has no lines: give a text with one sentence per line.")
    chance.shuffle(sample)
    return lines, [line.decode("utf-8", "replace") for line in sample]


def _read(texts: Sequence[Path]) -> Iterator[bytes]:
    return chain.from_iterable(LineReader(path) for path in texts)


def _measure(
    request: SynthesisRequest,
    machine: Machine,
    job: TranslationJob,
    files: list[EngineFiles],
    sample: list[str],
    estimate: SynthesisEstimate,
) -> None:
    connection = WorkerConnection(WorkerPlace(machine), request.client)
    try:
        gpus = connection.greet()
        if job.device == "cuda" and not gpus:
            raise UnusableHostError("has no GPU: leave it out, or use --device cpu")
        connection.prepare(job, files)
        estimate.machines[machine.name] = connection.machine_description
        speed, estimate.scoring_share[machine.name] = _measure_speed(connection, sample)
        estimate.lines_per_s[machine.name] = speed * (min(machine.workers or gpus, gpus) if job.device == "cuda" else 1)
    except (HostLostError, UnusableHostError) as error:
        estimate.problems[machine.name] = str(error)
    finally:
        connection.close()


def _measure_speed(connection: WorkerConnection, sample: list[str]) -> tuple[float, float]:
    """Lines per second and the share of the time that scores take, at the largest part of the sample that was measured.

    Small parts do not fill the batches.
    """
    size = FIRST_LINES
    while True:
        connection.send_shard(TextShard(0, 0, tuple(sample[:size])))
        result = connection.receive_result()
        seconds = result.seconds + result.tokenizing_s
        if seconds >= MEASURED_S or size >= len(sample):
            seconds = max(seconds, 1e-6)
            return min(size, len(sample)) / seconds, result.scoring_s / seconds
        size *= 2

"""Quality of local steps against synchronous training on the same tokens: loss, BLEU, and bytes sent.

Workers are simulated on one device (see `benchmarks.simulated_workers`): the exchange, the batches and their shares are
those of real runs. A cell is `WORKERS/INTERVAL/WIRE_FORMAT`, with the outer learning rate and momentum if they are not
1 and 0: `4/128/int4/0.7/0.9`; `sync` is synchronous training, which does not depend on the number of workers. Values
with commas are all their combinations: `2,8/128/int4,int2` is four cells. Each cell runs in a process of its own.
Finished cells are kept in a file of JSON lines, and not repeated with the same data, sets and settings.

    python -m benchmarks.exchange_quality --data DATA --steps 2048 --cells sync 2/128/int4 --out cells.jsonl
    python -m benchmarks.exchange_quality --data DATA --recipe modern --device cuda --steps 2000 --seconds 540
"""

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.command_line import make_parser
from benchmarks.forked_commands import call_forked
from benchmarks.reporting import print_json, print_row
from benchmarks.simulated_workers import SharedTrainStep, SimulatedCluster, SimulatedWorld
from dragoman.batching.data_loader import PREFETCHED_BATCHES, DataLoader, Position, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import read_evaluation_sets
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.events import Event
from dragoman.model.architecture import Architecture
from dragoman.model.cuda_graph import uses_cuda_graphs
from dragoman.model.memory_budget import choose_micro_batch_tokens
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.prefetch import Prefetcher
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.schedule import learning_rate_at
from dragoman.settings import Settings
from dragoman.step_model import sent_bytes
from dragoman.training.evaluation import Evaluator
from dragoman.training.replica import Replica, build_replica
from dragoman.training.train_step import TrainStep

SYNCHRONOUS = "sync"
MAX_FRAGMENTS = 32
"""Fragments of tiny models would be smaller than a block of quantized values if there were more."""
DEFAULT_CELLS = (SYNCHRONOUS, "2,4,8/32,128,512/int8,int4,int2")


@dataclass(frozen=True)
class Cell:
    """One setting of the exchange."""

    workers: int = 1
    every: int = 1
    wire_format: str = "fp32"
    outer_learning_rate: float = 1.0
    outer_momentum: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Cell":
        if text == SYNCHRONOUS:
            return cls()
        workers, every, wire_format, *outer = text.split("/")
        rate, momentum = map(float, outer) if outer else (1.0, 0.0)
        return cls(int(workers), int(every), wire_format, rate, momentum)

    def overrides(self) -> list[str]:
        """The settings of a run like this cell."""
        if self.workers == 1:
            return ["exchange.method=plain"]
        return [
            "exchange.method=local",
            f"exchange.every={self.every}",
            f"exchange.wire_format={self.wire_format}",
            f"exchange.overlap={max(1, self.every // MAX_FRAGMENTS)}",
            f"exchange.outer_learning_rate={self.outer_learning_rate}",
            f"exchange.outer_momentum={self.outer_momentum}",
        ]


@dataclass(frozen=True)
class QualityResult:
    """The scores of a trained cell."""

    nll: float
    bleu: float
    bytes_per_step: float
    """Sent by each worker."""
    plain_bytes_per_step: float
    learning_rate_factor: float
    """By which the workers' steps were made longer, at the end."""
    step_s: float
    """Time of a step of all workers, one after the other."""
    elapsed_s: float
    sets: dict[str, Any]
    """Scores on the sets of `--also-evaluate`."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", required=True, help="prepared data set")
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--cells", nargs="+", default=DEFAULT_CELLS, metavar="CELL")
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no cell after this time")
    parser.add_argument("--out", type=Path, default=Path("exchange-quality.jsonl"), help="finished cells")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings")
    parser.add_argument("--also-evaluate", nargs="*", default=[], metavar="NAME=SOURCE,REFERENCE")
    arguments = parser.parse_args()
    started_at = time.monotonic()
    data = DataSet(Path(arguments.data))
    sets = {each.name: each.identity for each in read_evaluation_sets(arguments.also_evaluate, data.tokenizer)}
    fixed = {name: getattr(arguments, name) for name in ("recipe", "steps", "device", "set")}
    fixed |= {"data": data.manifest.identity, "also_evaluate": sets}
    for text, cell in {text: Cell.parse(text) for text in expand_cells(arguments.cells)}.items():
        known = {result["cell"] for result in read_results(arguments.out, fixed)}
        if text in known or time.monotonic() - started_at > arguments.seconds:
            continue
        overrides = [f"training.steps={arguments.steps}", *arguments.set, *cell.overrides()]
        settings = resolve(arguments.recipe, overrides).settings
        try:  # In a process of its own, so that nothing is left of it: compiled code, memory, threads after an error.
            further = (cell.workers, arguments.device, arguments.also_evaluate)
            result = call_forked(train_cell, settings, Path(arguments.data), *further)
        except Exception:
            traceback.print_exc()
            continue
        with arguments.out.open("a", encoding="utf-8") as file:
            print(json.dumps({**fixed, "cell": text, **asdict(cell), **asdict(result)}), file=file)
        print(f"{text}: {result.elapsed_s:.0f} s, {result.step_s:.4f} s a step", file=sys.stderr, flush=True)
    print_table(list(read_results(arguments.out, fixed)))


def expand_cells(texts: Sequence[str]) -> list[str]:
    """The single cells of texts with several values, separated by commas."""
    return ["/".join(values) for text in texts for values in product(*(part.split(",") for part in text.split("/")))]


def read_results(path: Path, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Finished cells of the same recipe, steps, device, further settings, data and evaluation sets."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            if all(result.get(name) == value for name, value in fixed.items()):
                yield result


def train_cell(
    settings: Settings, folder: Path, workers: int, device_name: str, also_evaluate: Sequence[str] = ()
) -> QualityResult:
    """Train simulated workers to the end, and evaluate the weights that they all have then."""
    started_at, data, device = time.monotonic(), DataSet(folder), torch.device(device_name)
    bench = _CellRun(settings, data, workers, device)
    training_at = time.monotonic()
    results = SimulatedWorld(workers).run(bench.train_worker, device)
    training_s = time.monotonic() - training_at
    replica, total_bytes, learning_rate_factor = results[0]
    parameters = sum(parameter.numel() for parameter in replica.model.trainable_parameters)
    with tempfile.TemporaryDirectory() as name, replica.averaged_weights():
        alone, precision = Cluster(0, 1, 1, device), Precision.choose(settings, device)
        sets, scorer = read_evaluation_sets(also_evaluate, data.tokenizer), make_scorer(settings, data)
        run, micro_batch_tokens = RunFolder(Path(name)), bench.loader.micro_batch_tokens
        evaluator = Evaluator(settings, data, run, alone, precision, scorer, micro_batch_tokens, sets)
        scores = evaluator.evaluate(replica.model, settings.training.steps)
        alone.close()
    assert scores.bleu is not None
    return QualityResult(
        nll=scores.nll,
        bleu=scores.bleu,
        bytes_per_step=total_bytes / settings.training.steps,
        plain_bytes_per_step=sent_bytes(parameters, "fp32", workers),
        learning_rate_factor=learning_rate_factor,
        step_s=training_s / settings.training.steps,
        elapsed_s=time.monotonic() - started_at,
        sets=scores.sets,
    )


class _CellRun:
    """The training of one cell."""

    def __init__(self, settings: Settings, data: DataSet, workers: int, device: torch.device) -> None:
        self._settings, self._workers, self._device = settings, workers, device
        self._architecture = architecture = Architecture(
            vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump()
        )
        pairs, batch, precision = data.pairs("train"), settings.batch, Precision.choose(settings, device)
        # Micro-batches are padded to multiples of a sixteenth of the largest, so that is no larger than a share needs.
        share_tokens = -(-batch.tokens // workers) + int(pairs.lengths().max())
        self.loader = DataLoader(
            pairs, data.tokenizer, batch.tokens, batch.seed,
            min(share_tokens, choose_micro_batch_tokens(settings, architecture, device, 1)),
            fixed_sizes=uses_cuda_graphs(precision, architecture, device),
        )  # fmt: skip
        model = Transformer(architecture).to(device)
        step = TrainStep(model, self.loader, precision, settings.training, device, refuse_split)
        self._train_step = SharedTrainStep(model, step)
        for rank in range(workers):
            self._train_step.warm_up(next(self._batches(rank)))

    def train_worker(self, cluster: SimulatedCluster) -> tuple[Replica, int, float]:
        """All steps of one worker. Returns its replica, the bytes that it has sent, and its learning-rate factor."""
        with cluster.turn:  # Weights are drawn from the generator that all threads share.
            replica = build_replica(self._settings, self._architecture, cluster)
        exchange = self._settings.exchange
        choice = choose_exchange.from_settings(exchange)
        replica.exchange = choose_exchange.build(choice, exchange, cluster, replica.model.trainable_parameters)
        batches = Prefetcher(self._batches(cluster.rank), PREFETCHED_BATCHES)
        try:
            for step in range(1, self._settings.training.steps + 1):
                self._advance(replica, next(batches), cluster, step)
        finally:
            batches.close()
        return replica, cluster.bytes_sent, replica.exchange.learning_rate_factor

    def _batches(self, rank: int) -> Iterator[WorkerBatch]:
        return self.loader.batches(Position(), [1.0] * self._workers, rank)

    def _advance(self, replica: Replica, batch: WorkerBatch, cluster: SimulatedCluster, step: int) -> None:
        """One step, as the trainer does it."""
        settings, zeros = self._settings, [0.0] * self._workers
        with cluster.turn:
            gradients = self._train_step(replica.model, batch, step)
        stats = StepStats(gradients.losses, batch.worker_target_tokens, zeros, zeros)
        stats = replica.exchange.all_reduce(stats, batch.target_tokens)
        with cluster.turn:
            rate = learning_rate_at(step, settings.schedule, settings.training.steps, settings.model.d_model)
            norm, clip_norm = replica.gradient_norm(), settings.optimizer.clip_norm
            is_finite = None if self._device.type == "cuda" else True  # A GPU must not wait for Python to read it.
            replica.apply_gradients(rate, clip_norm, stats.losses[0], norm, is_finite)
        replica.synchronize(flush=step == settings.training.steps, rollback=False)
        replica.update_average()


def refuse_split(event: Event) -> None:
    """End a cell that would go on several times slower."""
    raise RuntimeError(f"{event}: run the cell again when no other program uses the device.")


def print_table(results: Sequence[dict[str, Any]]) -> None:
    baseline = next((result for result in results if result["cell"] == SYNCHRONOUS), None)
    names = list(results[0]["sets"]) if results else []
    scores = ["loss", "BLEU", *(f"{score}, {name}" for name in names for score in ("loss", "BLEU"))]
    print_row("cell", *scores, "bytes a step and worker", "against plain")
    print_row(*["---"] * (len(scores) + 3))
    for result in results:
        sent = result["bytes_per_step"]
        part = f"1/{result['plain_bytes_per_step'] / sent:,.0f}" if sent else ""
        print_row(result["cell"], *_compare(result, baseline), f"{sent:,.0f}", part)
    print_json("exchange_quality", cells=list(results))


def _compare(result: dict[str, Any], baseline: dict[str, Any] | None) -> Iterator[str]:
    """Loss and BLEU on each set, and their differences from those of synchronous training."""
    others = {} if baseline is None else {"": baseline, **baseline["sets"]}
    for name, found in {"": result, **result["sets"]}.items():
        other = others.get(name)
        yield f"{found['nll']:.3f}" + (f" ({100 * (found['nll'] / other['nll'] - 1):+.1f} %)" if other else "")
        yield f"{found['bleu']:.1f}" + (f" ({found['bleu'] - other['bleu']:+.1f})" if other else "")


if __name__ == "__main__":
    main()

"""Quality of local steps against synchronous training on the same tokens: loss, BLEU, and bytes sent.

Workers are simulated on one device (see `benchmarks.simulated_workers`): the exchange, the batches and their shares are
those of real runs. A cell is `WORKERS/INTERVAL/WIRE_FORMAT`, with the outer learning rate and momentum if they are not
1 and 0: `4/128/int4/0.7/0.9`; `sync` is synchronous training, which does not depend on the number of workers. Finished
cells are kept in a file of JSON lines and not repeated.

    python -m benchmarks.exchange_quality --data DATA --steps 2048 --cells sync 2/128/int4 --out cells.jsonl
    python -m benchmarks.exchange_quality --data DATA --recipe modern --device cuda --steps 2000 --seconds 540
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.command_line import make_parser
from benchmarks.reporting import print_json, print_row
from benchmarks.simulated_workers import SimulatedCluster, SimulatedWorld
from dragoman.batching.data_loader import DataLoader, Position
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import read_evaluation_sets
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.memory_budget import choose_micro_batch_tokens
from dragoman.model.precision import Precision
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
DEFAULT_CELLS = [
    SYNCHRONOUS,
    *(f"{n}/{every}/{bits}" for n in (2, 4) for every in (32, 128, 512) for bits in ("int8", "int4", "int2")),
]


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
    started_at, data = time.monotonic(), DataSet(Path(arguments.data))
    fixed = {name: getattr(arguments, name) for name in ("recipe", "steps", "device", "set")}
    for text in arguments.cells:
        known = {result["cell"] for result in read_results(arguments.out, fixed)}
        if text in known or time.monotonic() - started_at > arguments.seconds:
            continue
        cell = Cell.parse(text)
        overrides = [f"training.steps={arguments.steps}", *arguments.set, *cell.overrides()]
        settings = resolve(arguments.recipe, overrides).settings
        device = torch.device(arguments.device)
        result = train_cell(settings, data, cell.workers, device, arguments.also_evaluate)
        with arguments.out.open("a", encoding="utf-8") as file:
            print(json.dumps({**fixed, "cell": text, **asdict(cell), **asdict(result)}), file=file)
    print_table(list(read_results(arguments.out, fixed)))


def read_results(path: Path, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Finished cells of the same recipe, steps, device and further settings."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            if all(result[name] == value for name, value in fixed.items()):
                yield result


def train_cell(
    settings: Settings, data: DataSet, workers: int, device: torch.device, also_evaluate: Sequence[str] = ()
) -> QualityResult:
    """Train simulated workers to the end, and evaluate the weights that they all have then."""
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    started_at = time.monotonic()
    # An exchange runs on threads that interrupt others anywhere: CUDA graphs could not be captured meanwhile.
    micro_batch_tokens = choose_micro_batch_tokens(settings, architecture, device, workers)

    def train(cluster: SimulatedCluster) -> tuple[Replica, int]:
        with cluster.turn:  # Weights are drawn from the generator that all threads share.
            replica = build_replica(settings, architecture, cluster)
        _train_replica(replica, settings, data, cluster, micro_batch_tokens)
        return replica, cluster.bytes_sent

    results = SimulatedWorld(workers).run(train, device)
    replica, total_bytes = results[0]
    parameters = sum(parameter.numel() for parameter in replica.model.trainable_parameters)
    with tempfile.TemporaryDirectory() as folder, replica.averaged_weights():
        alone, precision = Cluster(0, 1, 1, device), Precision.choose(settings, device)
        sets, scorer = read_evaluation_sets(also_evaluate, data.tokenizer), make_scorer(settings, data)
        run = RunFolder(Path(folder))
        evaluator = Evaluator(settings, data, run, alone, precision, scorer, micro_batch_tokens, sets)
        scores = evaluator.evaluate(replica.model, settings.training.steps)
        alone.close()
    assert scores.bleu is not None
    return QualityResult(
        nll=scores.nll,
        bleu=scores.bleu,
        bytes_per_step=total_bytes / settings.training.steps,
        plain_bytes_per_step=sent_bytes(parameters, "fp32", workers),
        elapsed_s=time.monotonic() - started_at,
        sets=scores.sets,
    )


def _train_replica(
    replica: Replica, settings: Settings, data: DataSet, cluster: SimulatedCluster, micro_batch_tokens: int
) -> None:
    """All steps of one worker, as the trainer does them."""
    device, workers = cluster.device, cluster.world_size
    choice = choose_exchange.from_settings(settings.exchange)
    replica.exchange = choose_exchange.build(choice, settings.exchange, cluster, replica.model.trainable_parameters)
    batch_settings = settings.batch
    loader = DataLoader(
        data.pairs("train"), data.tokenizer, batch_settings.tokens, batch_settings.seed, micro_batch_tokens
    )
    precision = Precision.choose(settings, device)
    train_step = TrainStep(replica.model, loader, precision, settings.training, device, lambda _: None)
    batches = loader.batches(Position(), [1.0] * workers, cluster.rank)
    for step in range(1, settings.training.steps + 1):
        batch = next(batches)
        with cluster.turn:
            gradients = train_step(batch, step)
        stats = StepStats(gradients.losses, batch.worker_target_tokens, [0.0] * workers, [0.0] * workers)
        stats = replica.exchange.all_reduce(stats, batch.target_tokens)
        with cluster.turn:
            rate = learning_rate_at(step, settings.schedule, settings.training.steps, settings.model.d_model)
            norm, clip_norm = replica.gradient_norm(), settings.optimizer.clip_norm
            is_finite = None if device.type == "cuda" else True  # A GPU must not wait for Python to read it.
            replica.apply_gradients(rate, clip_norm, stats.losses[0], norm, is_finite)
            replica.model.zero_grad()
        replica.synchronize(flush=step == settings.training.steps, rollback=False)
        replica.update_average()


def print_table(results: Sequence[dict[str, Any]]) -> None:
    baseline = next((result for result in results if result["cell"] == SYNCHRONOUS), None)
    print_row("cell", "loss", "against sync", "BLEU", "against sync", "bytes a step and worker", "against plain")
    print_row(*["---"] * 7)
    for result in results:
        loss, bleu = ("", "") if baseline is None else (
            f"{100 * (result['nll'] / baseline['nll'] - 1):+.1f} %", f"{result['bleu'] - baseline['bleu']:+.1f}"
        )  # fmt: skip
        sent = result["bytes_per_step"]
        part = f"1/{result['plain_bytes_per_step'] / sent:,.0f}" if sent else ""
        print_row(result["cell"], f"{result['nll']:.3f}", loss, f"{result['bleu']:.1f}", bleu, f"{sent:,.0f}", part)
    print_json("exchange_quality", cells=list(results))


if __name__ == "__main__":
    main()

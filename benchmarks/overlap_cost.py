"""A training step with quantization and copies of an exchange under way, against one without.

One worker trains on the device alone. Others are one of two, with local steps: a link that only takes time, and echoes
what is sent, stands for the peer. They take turns, and the difference is what the exchange costs. On a fast link that
is quantization, copies and the outer step alone; a slow one must also be hidden behind the steps. All have the interval
and the wire format that `auto` chooses for the slowest link and the measured step, unless --every is given.

    python -m benchmarks.overlap_cost --data DATA --recipe transformer-base --device cuda
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.command_line import make_parser
from benchmarks.reporting import Figure, print_figures
from dragoman.batching.data_loader import DataLoader, Position, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.cuda_graph import uses_cuda_graphs
from dragoman.model.memory_budget import choose_micro_batch_tokens
from dragoman.model.precision import Precision
from dragoman.recipe import resolve
from dragoman.settings import Settings
from dragoman.step_model import (
    PLAIN,
    ExchangeChoice,
    ExchangeConditions,
    ExchangeMethod,
    RingLink,
    choose,
    exchange_method,
)
from dragoman.training.replica import build_replica
from dragoman.training.train_step import TrainStep

TURNS = 5
WARMUP_STEPS = 5


class EchoGroup:
    """A world of two, of which the other one always sends the same. Messages take time."""

    rank, world_size = 0, 2
    members: tuple[Any, ...] = ()
    message_device = torch.device("cpu")

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.bytes_sent = 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.all_reduce_async(tensor)()
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], Any]:
        return self._send(tensor, lambda: tensor.mul_(2))

    def all_gather_async(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        return self._send(tensor, lambda: [tensor, tensor.clone()])

    def all_to_all_async(self, parts: Tensor) -> Callable[[], Tensor]:
        return self._send(parts[0], lambda: parts)

    def _send(self, tensor: Tensor, result: Callable[[], Any]) -> Callable[[], Any]:
        size = tensor.numel() * tensor.element_size()
        self.bytes_sent += size

        def wait() -> Any:
            time.sleep(size / self._bytes_per_s)
            return result()

        return wait


class EchoCluster(Cluster):
    """A worker whose link echoes, or a single worker."""

    def __init__(self, device: torch.device, bytes_per_s: float | None) -> None:
        super().__init__(0, 2 if bytes_per_s else 1, 1, device)
        self._group = EchoGroup(bytes_per_s) if bytes_per_s else None  # type: ignore[assignment]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="prepared data set")
    parser.add_argument("--recipe", default="transformer-base")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100, help="steps of each turn")
    parser.add_argument("--every", type=int, help="steps between synchronisations (default: the choice of auto)")
    parser.add_argument("--wire-format", default="int4", help="with --every")
    parser.add_argument("--tokens", type=int, default=25600, help="tokens of a batch")
    parser.add_argument("--mbit", type=float, nargs="+", default=[100.0, 100_000.0], help="rates of the links")
    arguments = parser.parse_args()
    method = None
    if arguments.every is not None:
        method = exchange_method("local", interval=arguments.every, wire_format=arguments.wire_format)
    settings = resolve(arguments.recipe, [f"batch.tokens={arguments.tokens}"]).settings
    device, data = torch.device(arguments.device), DataSet(arguments.data)
    print_figures("overlap_cost", measure_cost(settings, data, device, arguments.steps, arguments.mbit, method))


def measure_cost(
    settings: Settings,
    data: DataSet,
    device: torch.device,
    steps: int,
    links_mbit: Sequence[float],
    method: ExchangeMethod | None,
) -> Iterator[Figure]:
    """Medians over turns that alternate."""
    alone = _EchoRun(settings, data, EchoCluster(device, None), PLAIN)
    alone.time_steps(WARMUP_STEPS)
    method = method or choose_local(alone.parameters, alone.time_steps(steps), min(links_mbit))
    setting = f"{method.interval}; {method.wire_format}"
    yield Figure("steps between synchronisations; wire format", setting, "", [method.interval, method.wire_format])
    busy = [_EchoRun(settings, data, EchoCluster(device, 1e6 * mbit / 8), method) for mbit in links_mbit]
    for run in busy:
        run.time_steps(WARMUP_STEPS)
    times = [[run.time_steps(steps) for run in (alone, *busy)] for _ in range(TURNS)]
    alone_s, *busy_s = (statistics.median(each) for each in zip(*times, strict=True))
    for mbit, each_s in zip(links_mbit, busy_s, strict=True):
        cost = each_s / alone_s - 1
        text = f"{100 * cost:+.1f} % ({1000 * each_s:.1f} and {1000 * alone_s:.1f} ms)"
        yield Figure(f"a step beside an exchange at {mbit:,.0f} Mbit/s against one without", text, "3 %", cost)


def choose_local(parameters: int, step_s: float, link_mbit: float) -> ExchangeMethod:
    """The local steps that `auto` chooses for two workers with this link."""
    method = choose(ExchangeConditions(RingLink(1e6 * link_mbit), parameters, 2), step_s).method
    if method.name != "local":
        raise SystemExit(f"auto chooses {method.name} at {link_mbit:,.0f} Mbit/s: give --every, or a slower --mbit.")
    return method


class _EchoRun:
    """A replica that trains."""

    def __init__(self, settings: Settings, data: DataSet, cluster: EchoCluster, method: ExchangeMethod) -> None:
        device = self._device = cluster.device
        architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
        self._workers = cluster.world_size
        self._replica = build_replica(settings, architecture, cluster)
        parameters = self._replica.model.trainable_parameters
        self.parameters = sum(parameter.numel() for parameter in parameters)
        if cluster.world_size > 1:
            choice = ExchangeChoice(method)
            self._replica.exchange = choose_exchange.build(choice, settings.exchange, cluster, parameters)
        precision = Precision.choose(settings, device)
        loader = DataLoader(
            data.pairs("train"), data.tokenizer, settings.batch.tokens, settings.batch.seed,
            choose_micro_batch_tokens(settings, architecture, device, 1),
            fixed_sizes=uses_cuda_graphs(precision, architecture, device),
        )  # fmt: skip
        self._train_step = TrainStep(self._replica.model, loader, precision, settings.training, device, lambda _: None)
        # All pairs of a batch, in both cases: the device does the same work.
        self._batch: WorkerBatch = next(loader.batches(Position(), [1.0], 0))

    def time_steps(self, steps: int) -> float:
        """Mean time of a step."""
        zeros = [0.0] * self._workers
        self._finish()
        started_at = time.perf_counter()
        for step in range(1, steps + 1):
            losses = self._train_step(self._batch, step).losses
            tokens = self._batch.worker_target_tokens
            stats = self._replica.exchange.all_reduce(
                StepStats(losses, tokens, zeros, zeros), self._batch.target_tokens
            )
            norm = self._replica.gradient_norm()
            is_finite = None if self._device.type == "cuda" else True
            self._replica.apply_gradients(1e-5, 1.0, stats.losses[0], norm, is_finite)
            self._replica.model.zero_grad()
            self._replica.synchronize(flush=False, rollback=False)
        self._finish()
        return (time.perf_counter() - started_at) / steps

    def _finish(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


if __name__ == "__main__":
    main()

"""Bytes that `exchange.method=auto` sends for fast GPUs on a slow link, counted in collectives of the real exchange.

The choice follows from the model of a step; then simulated workers with as many parameters as the recipe exchange a few
fragments, and count what they send. Needs no GPU: times of steps are given.

    python -m benchmarks.exchange_bytes [--step-s 0.033] [--mbit 100] [--round-trip-ms 1]
"""

from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.command_line import make_parser
from benchmarks.reporting import Figure, print_figures
from benchmarks.simulated_workers import SimulatedCluster, SimulatedWorld
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.step_model import ExchangeChoice, ExchangeConditions, ExchangeMethod, TcpLink, choose, sent_bytes

RECIPE = "transformer-base"
COUNTED_MESSAGES = 2
"""Fragments to exchange: all are of about the same size."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--step-s", type=float, default=0.033, help="time of a step, by default as on an H200")
    parser.add_argument("--mbit", type=float, default=100.0)
    parser.add_argument("--round-trip-ms", type=float, default=1.0)
    arguments = parser.parse_args()
    link = TcpLink(1e6 * arguments.mbit, arguments.round_trip_ms / 1000)
    print_figures("exchange_bytes", measure_bytes(link, arguments.step_s))


def measure_bytes(link: TcpLink, step_s: float) -> Iterator[Figure]:
    parameters = count_parameters()
    sent: dict[int, float] = {}
    for workers in (2, 4, 8):
        choice = choose(ExchangeConditions(link.ring(workers), parameters, workers), step_s)
        sent[workers] = count_bytes(choice, parameters, workers)
        part = sent_bytes(parameters, "fp32", workers) / sent[workers]
        name = f"{workers} workers: bytes a step and worker, against plain"
        text = f"{sent[workers]:,.0f}, 1/{part:,.0f} ({describe(choice.method)})"
        yield Figure(name, text, "1/400" if workers == 2 else "", {"bytes": sent[workers], "reason": choice.reason})
        if workers == 2:
            two_workers = choice
    yield Figure("8 workers against 2: bytes a worker", f"{sent[8] / sent[2]:.2f} x", "1.8 x", sent[8] / sent[2])
    ratio = count_bytes(two_workers, parameters, 8) / sent[2]
    yield Figure("the same with the setting of 2 workers", f"{ratio:.2f} x", "1.8 x", ratio)


def count_parameters() -> int:
    settings = resolve(RECIPE).settings
    with torch.device("meta"):
        model = Transformer(Architecture(vocabulary=settings.tokenizer.vocabulary_size, **settings.model.model_dump()))
    return sum(parameter.numel() for parameter in model.parameters())


def count_bytes(choice: ExchangeChoice, parameters: int, workers: int) -> float:
    """Bytes that a worker sends in each step, on average over the steps of a few messages."""
    method = choice.method
    steps = COUNTED_MESSAGES * max(1, method.overlap)

    def exchange_fragments(cluster: SimulatedCluster) -> float:
        weights, zeros = nn.Parameter(torch.zeros(parameters)), [0.0] * workers
        exchange = LocalSteps(cluster, [weights], method.interval, method.wire_format, 1.0, 0.0, overlap=method.overlap)
        for _ in range(steps):
            exchange.all_reduce(StepStats(torch.zeros(2), 1, zeros, zeros), 1)
            exchange.synchronize(flush=False)
        assert exchange._pending is not None
        exchange._finish(exchange._pending)
        return cluster.bytes_sent / steps

    return SimulatedWorld(workers).run(exchange_fragments, torch.device("cpu"))[0]


def describe(method: ExchangeMethod) -> str:
    return f"{method.name}, every {method.interval}, {method.wire_format}, overlap {method.overlap}"


if __name__ == "__main__":
    main()

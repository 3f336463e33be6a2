"""Loss curves of different numbers of workers, with dropout, and what their equality costs.

curves: the recipe `tiny` with dropout of 0.1 everywhere, in float32, on one worker and on several, with unequal shares,
in micro-batches, and resumed on another number of workers. The figure is the largest relative difference of a loss from
that of one worker. Rounding differs and grows with the steps: without dropout it is as large.

cost: forward and backward passes with our dropout and with torch's, which draws from a generator, in one process and on
the same weights and batches. The two alternate; the figure is the median of the ratios of neighbours. On a CPU it is
CPU time with one thread, which other work on the machine changes little. On a GPU, passes run as in training, in bf16;
torch's dropout is compiled with the layers, and residual additions use our kernel without dropout. The kernel of
attention has no dropout but ours, so attention weights have none on either side.

    python -m benchmarks.loss_curves [--only curves cost] [--device cuda] [--corpora FOLDER]
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.command_line import NO_EVALUATION, make_parser, run_dragoman
from benchmarks.corpora import CORPORA, prepare_multi30k
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import measure_s
from dragoman.batching.data_loader import DataLoader, Position, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.events import StepDone
from dragoman.model import transformer
from dragoman.model.architecture import Architecture
from dragoman.model.cuda_graph import uses_cuda_graphs
from dragoman.model.dropout import Dropout
from dragoman.model.precision import Precision
from dragoman.model.residual import add_and_norm
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.training.train_step import TrainStep

STEPS = 50
DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1")
NO_DROPOUT = ("model.dropout=0", "model.attention_dropout=0", "model.activation_dropout=0")
CURVE_SETTINGS = (
    *NO_EVALUATION, "training.precision=fp32", "exchange.method=plain", "schedule.policy=constant",
)  # fmt: skip
TOLERANCE = 1e-4
MAX_COST = 0.02
COST_SETTINGS = ("model.dropout=0.1", "model.attention_dropout=0")
COST_RECIPES = {"cpu": ("demo", "tiny", "small"), "cuda": ("transformer-base", "modern")}
GPU_TOKENS = 25600
COST_BATCHES = 8
INACTIVE = Dropout(0.0)


@dataclass(frozen=True)
class Bench:
    """What all sections use."""

    device: str
    corpora: Path
    folder: Path
    rounds: int

    def prepare(self, recipe: str) -> DataSet:
        out = self.folder / f"data-{recipe}"
        return DataSet(out) if out.exists() else prepare_multi30k(out, recipe, self.corpora)


def measure_curves(bench: Bench) -> Iterator[Figure]:
    data = bench.prepare("tiny")

    def train(name: str, workers: int, *settings: str) -> dict[int, float]:
        run = bench.folder / name
        arguments = ["train", "tiny", "--data", data.path, "--out", run, "--workers", str(workers)]
        run_dragoman(*arguments, *CURVE_SETTINGS, *DROPOUT, f"training.steps={STEPS}", *settings)
        return {event.step: event.loss for event in RunFolder(run).events() if isinstance(event, StepDone)}

    expected = train("one", 1)
    first, last = expected[1], expected[STEPS]
    yield Figure(f"loss of one worker at steps 1 and {STEPS}", f"{first:.4f}; {last:.4f}", "", [first, last])
    runs: dict[str, Callable[[], dict[int, float]]] = {
        "two workers": lambda: train("two", 2),
        "two workers with shares 3:1": lambda: train("shares", 2, "training.shares=[3,1]"),
        "one worker, in micro-batches of 500 tokens": lambda: train("micro", 1, "training.micro_batch_tokens=500"),
        "one worker to step 20, then two": lambda: train("resumed", 1, "training.steps=20") and train("resumed", 2),
    }
    if bench.device == "cpu":
        runs["four workers"] = lambda: train("four", 4)
    for name, run in runs.items():
        yield difference_figure(name, run(), expected)
    losses, expected = (train(f"plain-{workers}", workers, *NO_DROPOUT) for workers in (2, 1))
    yield difference_figure("two workers and one, without dropout", losses, expected)


def difference_figure(name: str, losses: dict[int, float], expected: dict[int, float]) -> Figure:
    relative = max(abs(losses[step] / loss - 1) for step, loss in expected.items())
    absolute = max(abs(losses[step] - loss) for step, loss in expected.items())
    text = f"{relative:.1e} ({absolute:.1e} absolute)"
    return Figure(f"largest relative difference of a loss: {name}", text, f"{TOLERANCE:g}", [relative, absolute])


class TorchDropout(Dropout):
    """The same with torch's dropout."""

    def forward(self, x: Tensor, places: Tensor | None) -> Tensor:  # noqa: ARG002
        return F.dropout(x, self.active_rate)

    def add(self, residual: Tensor, x: Tensor, places: Tensor | None) -> Tensor:  # noqa: ARG002
        return residual + F.dropout(x, self.active_rate)

    def relu(self, x: Tensor, places: Tensor | None) -> Tensor:  # noqa: ARG002
        return F.dropout(F.relu(x, inplace=True), self.active_rate)


def add_and_norm_with_torchs_dropout(
    x: Tensor, y: Tensor, drop: Dropout, norm: nn.Module, places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if not isinstance(drop, TorchDropout) or not y.is_cuda:
        return add_and_norm(x, y, drop, norm, places)
    return add_and_norm(x, F.dropout(y, drop.active_rate), INACTIVE, norm)


def measure_cost(bench: Bench) -> Iterator[Figure]:
    torch.set_num_threads(1)
    transformer.add_and_norm = add_and_norm_with_torchs_dropout  # type: ignore[attr-defined]
    for recipe in COST_RECIPES[bench.device]:
        data = bench.prepare(recipe if bench.device == "cpu" else "small")  # Multi30k is too small for 32,768 tokens.
        ours, batches = make_step(bench, recipe, data, torchs=False)
        torchs, _ = make_step(bench, recipe, data, torchs=True)
        for batch in batches[:3]:  # Compiles, captures and warms up.
            ours(batch, 1)
            torchs(batch, 1)
        times = []
        for number in range(bench.rounds):
            batch = batches[number % len(batches)]
            our_s, torch_s = time_s(ours, batch, bench.device), time_s(torchs, batch, bench.device)
            times.append((our_s, torch_s))
        cost = median(our_s / torch_s for our_s, torch_s in times) - 1
        tokens = sum(batch.source_tokens + batch.target_tokens for batch in batches) / len(batches)
        rates = [tokens / median(spent) for spent in zip(*times, strict=True)]
        text = f"{cost:+.1%} ({rates[0]:,.0f} against {rates[1]:,.0f} tokens/s)"
        yield Figure(f"time of a pass against torch's dropout: {recipe}", text, f"at most {MAX_COST:.0%}", cost)


def make_step(bench: Bench, recipe: str, data: DataSet, *, torchs: bool) -> tuple[TrainStep, Sequence[WorkerBatch]]:
    """Passes of a recipe, and their batches."""
    size = [f"batch.tokens={GPU_TOKENS}"] if bench.device == "cuda" else []
    settings = resolve(recipe, [*COST_SETTINGS, *size]).settings
    device = torch.device(bench.device)
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    precision, tokens = Precision.choose(settings, device), settings.batch.tokens
    fixed_sizes = uses_cuda_graphs(precision, architecture, device)
    loader = DataLoader(data.pairs("train"), data.tokenizer, tokens, 1, tokens, fixed_sizes=fixed_sizes)
    torch.manual_seed(1)
    model = Transformer(architecture).to(device).train()
    if torchs:
        for module in model.modules():
            if isinstance(module, Dropout):
                module.__class__ = TorchDropout
    step = TrainStep(model, loader, precision, settings.training, device, print)
    return step, list(islice(loader.batches(Position(), [1.0], 0), COST_BATCHES))


def time_s(step: TrainStep, batch: WorkerBatch, device: str) -> float:
    if device == "cuda":
        return measure_s(lambda: step(batch, 1), device)
    started_s = time.process_time()
    step(batch, 1)
    return time.process_time() - started_s


SECTIONS: dict[str, Callable[[Bench], Iterator[Figure]]] = {"curves": measure_curves, "cost": measure_cost}


def main() -> None:
    parser = make_parser(__doc__, SECTIONS)
    parser.add_argument("--device", choices=list(COST_RECIPES), default="cpu")
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    parser.add_argument("--rounds", type=int, default=40, help="passes of each side")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Also for the workers.
    print(f"{options.device}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.device, options.corpora, Path(folder), options.rounds)
        figures = (figure for name in options.only for figure in SECTIONS[name](bench))
        print_figures("loss_curves", figures, device=options.device)


if __name__ == "__main__":
    main()

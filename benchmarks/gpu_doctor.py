"""Step times and memory that the doctor predicts on a GPU, against training: a section of `benchmarks.insight`.

    python -m benchmarks.gpu_doctor [--recipes modern ...] [--fit] [--corpora ../shared/data]

For each recipe and two batch sizes, `dragoman doctor` and then `dragoman train` on Multi30k. Needs one GPU; most of the
time is that of compiling, about a minute for each recipe and size. With `--fit`, the last recipe also trains with
micro-batches nearly as large as the doctor says that fit.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command_line import NO_EVALUATION, make_parser
from benchmarks.corpora import CORPORA, prepare_multi30k
from benchmarks.forked_commands import run_forked, start_forked
from benchmarks.reporting import Figure, print_figures
from dragoman.events import MicroBatchesSplit, RunEnded, StepDone
from dragoman.run_folder import RunFolder

BATCH_TOKENS = {
    "tiny": (2000, 8000),
    "small": (4096, 16384),
    "transformer-base": (8192, 25600),
    "modern": (25600, 12800),
    "transformer-big": (25000, 8192),
}
"""By recipe: its own batch size, and another one."""
STEPS = {"tiny": 800, "small": 800}
DEFAULT_STEPS = 200
WARM_UP_STEPS = 40
FITTING_SHARE = 0.95
"""Part of the largest micro-batch to train with."""


@dataclass(frozen=True)
class GpuPrediction:
    """What the doctor says of a run, and what training then measures."""

    predicted: Any
    """The doctor's JSON."""
    step_s: float
    peak_bytes: int

    @property
    def step_error(self) -> float:
        return float(self.predicted["estimate"]["step_s"]) / self.step_s - 1

    @property
    def memory_error(self) -> float:
        return float(self._host["memory_peak_bytes"]) / self.peak_bytes - 1

    @property
    def largest_tokens(self) -> int:
        return int(self._host["largest_micro_batch_tokens"])

    @property
    def _host(self) -> Any:
        return self.predicted["hosts"]["localhost"]

    def figures(self, name: str) -> Iterator[Figure]:
        estimate, host = self.predicted["estimate"], self._host
        low, high = (1000 * estimate[key] for key in ("step_low_s", "step_high_s"))
        text = (
            f"predicted {1000 * estimate['step_s']:.2f} ms ({low:.2f} to {high:.2f}), "
            f"measured {1000 * self.step_s:.2f} ms ({self.step_error:+.1%}); benchmark {host['benchmark_s']:.0f} s"
        )
        yield Figure(f"doctor, {name}: step time", text, "10 %", self.step_error)
        text = (
            f"predicted {host['memory_peak_bytes'] / 1e9:.2f} GB, measured {self.peak_bytes / 1e9:.2f} GB "
            f"({self.memory_error:+.1%}); largest micro-batch {self.largest_tokens:,} tokens"
        )
        yield Figure(f"doctor, {name}: memory", text, "10 %", self.memory_error)


class DoctorTrials:
    """Runs of the doctor and of training on one data set."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._folder, self._data, self._runs = folder, data, 0

    def compare(self, recipe: str, *settings: str) -> GpuPrediction:
        found = self.ask_doctor(recipe, *settings)
        run = self.train(recipe, STEPS.get(recipe, DEFAULT_STEPS), *settings)
        events = run.events()
        # Like the doctor, without steps in which something is compiled or captured.
        steps_s = [
            event.step_s
            for event in events
            if isinstance(event, StepDone) and event.step > WARM_UP_STEPS and not event.compile_s
        ]
        peak_bytes = next(event.peak_memory_bytes for event in events if isinstance(event, RunEnded))
        return GpuPrediction(found, statistics.fmean(steps_s), peak_bytes)

    def ask_doctor(self, recipe: str, *options: str) -> Any:
        text = run_forked(self._folder / "doctor.txt", "doctor", recipe, "--data", self._data, "--json", *options)
        return read_json_output(text)

    def train(self, recipe: str, steps: int, *settings: str) -> RunFolder:
        self._runs += 1
        run = self._folder / f"run-{self._runs}"
        arguments = ("train", recipe, "--data", self._data, "--out", run, f"training.steps={steps}", *NO_EVALUATION)
        start_forked(self._folder / "train.txt", *arguments, *settings).wait()
        return RunFolder(run)


def read_json_output(text: str) -> Any:
    """The JSON of a command whose output may begin with warnings of libraries."""
    return json.loads(text[text.index("{\n") :])


def measure_gpu_doctor(
    corpora: Path, recipes: Sequence[str] = tuple(BATCH_TOKENS), *, fit: bool = False
) -> Iterator[Figure]:
    found: list[GpuPrediction] = []
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_multi30k(Path(folder) / "data", "small", corpora).path
        trials = DoctorTrials(Path(folder), data)
        for recipe in recipes:
            for tokens in BATCH_TOKENS[recipe]:
                found.append(trials.compare(recipe, f"batch.tokens={tokens}"))
                yield from found[-1].figures(f"{recipe}, {tokens:,} tokens")
        yield from _sum_up(found)
        if fit:
            yield _measure_fit(trials, recipes[-1], found[-1].largest_tokens)
        yield _measure_quick(trials, recipes[-1], found[-1].step_s)


def _sum_up(found: Sequence[GpuPrediction]) -> Iterator[Figure]:
    for name, target, errors in (
        ("step times", "5 %", [abs(each.step_error) for each in found]),
        ("memory", "", [abs(each.memory_error) for each in found]),
    ):
        within = sum(error <= 0.1 for error in errors)
        yield Figure(f"doctor, {name}: within 10 %", f"{within} of {len(errors)}", "all", within / len(errors))
        median = statistics.median(errors)
        yield Figure(f"doctor, {name}: median error", f"{median:.1%}", target, median)


def _measure_quick(trials: DoctorTrials, recipe: str, step_s: float) -> Figure:
    """The quick mode, against the steps of training."""
    quick = trials.ask_doctor(recipe, "--quick", f"batch.tokens={BATCH_TOKENS[recipe][-1]}")
    error = quick["estimate"]["step_s"] / step_s - 1
    seconds = quick["hosts"]["localhost"]["benchmark_s"]
    text = f"{error:+.0%}, after {seconds:.0f} s"
    return Figure(f"doctor --quick, {recipe}: step time", text, "", error)


def _measure_fit(trials: DoctorTrials, recipe: str, largest_tokens: int) -> Figure:
    tokens = int(FITTING_SHARE * largest_tokens)
    run = trials.train(recipe, 4, f"batch.tokens={tokens}", f"training.micro_batch_tokens={tokens}")
    events = run.events()
    splits = sum(isinstance(event, MicroBatchesSplit) for event in events)
    peak_bytes = next(event.peak_memory_bytes for event in events if isinstance(event, RunEnded))
    text = f"{'fits' if not splits else 'DOES NOT FIT'}, peak {peak_bytes / 1e9:.1f} GB"
    return Figure(f"doctor, {recipe}: micro-batches of {tokens:,} tokens", text, "fits", not splits)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--recipes", nargs="+", choices=list(BATCH_TOKENS), default=list(BATCH_TOKENS))
    parser.add_argument("--fit", action="store_true", help="train with the largest micro-batch of the last recipe")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora")
    options = parser.parse_args()
    print_figures("gpu_doctor", measure_gpu_doctor(options.corpora, options.recipes, fit=options.fit))


if __name__ == "__main__":
    main()

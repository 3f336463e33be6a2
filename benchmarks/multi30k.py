"""Multi30k English-German on two CPU cores: BLEU after at most twenty minutes of training with the recipe `small`.

Prepares the corpus from raw text, trains the number of steps that two older cores manage in that time (and stops when
the time is over), and scores the best checkpoint on test2016: with sacreBLEU as it is, and lowercased, as in published
results for this set.

    python -m benchmarks.multi30k [--minutes 20] [--workers 1] [key=value ...]
"""

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sacrebleu

import dragoman
from benchmarks.command_line import dragoman_command, make_parser
from benchmarks.corpora import MULTI30K, prepare_multi30k, read_split
from benchmarks.reporting import Figure, print_figures
from dragoman.events import EvaluationDone, StepDone
from dragoman.run_folder import RunFolder

SETTINGS = ("training.steps=900", "schedule.warmup_steps=200", "evaluation.every=300", "evaluation.sentences=200")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="time limit of training")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("overrides", nargs="*", help="key=value")
    options = parser.parse_args()
    details = {"recipe": options.recipe, "minutes": options.minutes, "cores": os.cpu_count()}
    print(f"Multi30k en-de, recipe {options.recipe}, at most {options.minutes:g} minutes, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        print_figures("multi30k", measure(Path(folder), options), **details)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    data, run = folder / "data", folder / "run"
    started_at = time.perf_counter()
    prepare_multi30k(data, options.recipe)
    prepared_s = time.perf_counter() - started_at
    yield Figure("preparing", f"{prepared_s:.1f} s", "", prepared_s)
    train(data, run, options)
    events = RunFolder(run).events()
    for event in events:
        if isinstance(event, EvaluationDone) and event.bleu is not None:
            text = f"{event.bleu:.1f}; {event.nll:.3f}"
            yield Figure(f"validation BLEU; loss after step {event.step}", text, "", [event.bleu, event.nll])
    steps = [event for event in events if isinstance(event, StepDone)]
    yield Figure("steps; epochs begun", f"{steps[-1].step}; {steps[-1].epoch + 1}", "", steps[-1].step)
    tokens_per_s = sum(step.source_tokens + step.target_tokens for step in steps) / sum(step.step_s for step in steps)
    yield Figure("source and target tokens/s", f"{tokens_per_s:,.0f}", "", tokens_per_s)
    sources, references = read_split(MULTI30K, "test2016")
    translations = dragoman.load(run).translate(sources)
    for name, is_lowercased in (("sacreBLEU on test2016", False), ("the same, lowercased", True)):
        score = sacrebleu.corpus_bleu(translations, [references], lowercase=is_lowercased).score
        yield Figure(name, f"{score:.1f}", "", score)


def train(data: Path, run: Path, options: argparse.Namespace) -> None:
    """Train until the last step or the time limit."""
    arguments = ["train", options.recipe, "--data", data, "--out", run, "--workers", str(options.workers)]
    command = dragoman_command(*arguments, *SETTINGS, *options.overrides)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(options.minutes * 60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        process.wait()


if __name__ == "__main__":
    main()

"""Multi30k English-German on two cores: what twenty minutes of training with the recipe `small` reach.

Prepares the corpus, trains as many steps as two cores of some years ago manage in that time (and stops when it is over,
whatever was reached), and scores the best checkpoint on test2016: by sacreBLEU as it is, and lowercased, as published
figures for this set are.

    python -m benchmarks.multi30k [--minutes 20] [--workers 1] [key=value ...]
"""

import argparse
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sacrebleu

import dragoman
from dragoman.events import EvaluationDone, StepDone
from dragoman.run_folder import RunFolder

FITTING = ("training.steps=900", "schedule.warmup_steps=200", "evaluation.every=300", "evaluation.sentences=200")
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k-en-de"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("overrides", nargs="*", help="key=value")
    options = parser.parse_args()
    if not CORPUS.is_dir():
        raise SystemExit(f"{CORPUS} does not exist: put Multi30k there, as train.en.xz, train.de.xz and so for valid.")
    with tempfile.TemporaryDirectory() as folder:
        report(run(Path(folder), options), options)


def run(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    data, out = folder / "data", folder / "run"
    sides = [str(CORPUS / f"train.{language}.xz") for language in ("en", "de")]
    valid = ",".join(str(CORPUS / f"valid.{language}.xz") for language in ("en", "de"))
    recipe = ["--recipe", options.recipe]
    started = time.perf_counter()
    _dragoman("prepare", *sides, "--valid", valid, "--out", str(data), *recipe).wait()
    prepared_s = time.perf_counter() - started
    training = _dragoman(
        "train", options.recipe, "--data", str(data), "--out", str(out), "--workers", str(options.workers),
        *FITTING, *options.overrides,
    )  # fmt: skip
    try:
        training.wait(options.minutes * 60)
    except subprocess.TimeoutExpired:
        training.send_signal(signal.SIGTERM)
        training.wait()
    events = RunFolder(out).events()
    steps = [event for event in events if isinstance(event, StepDone)]
    evaluations = [event for event in events if isinstance(event, EvaluationDone) and event.bleu is not None]
    sources, references = (_lines(CORPUS / f"test2016.{language}.xz") for language in ("en", "de"))
    translations = dragoman.load(out).translate(sources)
    lowercased = sacrebleu.corpus_bleu(translations, [references], lowercase=True).score
    return {
        "prepared_s": prepared_s,
        "minutes": options.minutes,
        "steps": steps[-1].step,
        "epochs": steps[-1].epoch + 1,
        "tokens_per_s": sum(step.source_tokens + step.target_tokens for step in steps) / sum(s.step_s for s in steps),
        "valid_bleu": [(event.step, round(event.bleu or 0, 1), round(event.nll, 3)) for event in evaluations],
        "test_bleu": sacrebleu.corpus_bleu(translations, [references]).score,
        "test_bleu_lowercased": lowercased,
    }


def report(found: dict[str, object], options: argparse.Namespace) -> None:
    for step, bleu, nll in found["valid_bleu"]:  # type: ignore[attr-defined]
        print(f"step {step:>6}: validation BLEU {bleu:5.1f}, loss {nll:.3f}")
    print(f"\nMulti30k en-de, recipe {options.recipe}, {found['minutes']:g} minutes, {os.cpu_count()} cores")
    print(f"steps {found['steps']}, epochs {found['epochs']}, {found['tokens_per_s']:,.0f} tokens/s")
    print(f"test2016: BLEU {found['test_bleu']:.1f}, lowercased {found['test_bleu_lowercased']:.1f}")
    print(json.dumps(found))


def _dragoman(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dragoman", *words], stdout=subprocess.DEVNULL)


def _lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


if __name__ == "__main__":
    main()

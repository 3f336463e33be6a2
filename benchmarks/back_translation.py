"""Back-translation on europarl: pairs alone against pairs with the back-translated German side of others.

The commands are those of a user: `prepare` and `train` of a model from German to English and of the baseline,
`synthesize --back` of the German side of other pairs, `prepare` and `train` with both, `score`. All runs have the same
settings and the same number of steps, chosen for the pairs alone: a small vocabulary and much dropout, as 100,000 pairs
need. The checkpoint with the best BLEU on the validation set counts. The synthetic sentences carry a tag (Caswell et
al. 2019) and are those of a beam search, which suits a weak model better than samples (Edunov et al. 2018); the real
pairs are repeated.

All files may be compressed. Everything that exists in --out is kept, so the same command resumes, also after a time
limit; the seconds are those of all sessions, without the preparation of data sets. An H200 takes about twelve minutes
in all. With Multi30k and `--pairs 3000 --others 3000 --recipe tiny --steps 300 --vocabulary 1500 --set
evaluation.sentences=50` a CPU tries the flow in six; after fewer steps, the backward model only repeats itself, and
`synthesize` drops all of that.

    python -m benchmarks.back_translation C.en C.de --valid V.en V.de --test T.en T.de [--sample] [--out FOLDER]
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from benchmarks.command_line import dragoman_output, make_parser, run_dragoman
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.line_formats import LineReader
from dragoman.files import replacing

TAG = "<BT>"
EVALUATIONS = 8


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("corpus", type=Path, nargs=2)
    parser.add_argument("--valid", type=Path, nargs=2, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--others", type=int, default=500_000, help="pairs whose German side is translated back")
    parser.add_argument("--recipe", default="modern")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--repeat", type=int, default=3, help="times that each real pair occurs beside synthetic ones")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of all runs")
    parser.add_argument("--sample", action="store_true", help="draw translations instead of beam search")
    parser.add_argument("--out", type=Path, default=Path("back-translation"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    details = {
        name: getattr(options, name) for name in ("pairs", "others", "recipe", "steps", "dropout", "repeat", "set")
    }
    print_figures("back_translation", measure(options), **details)


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    out = options.out
    english, german = options.corpus
    pairs = [take(path, out / f"pairs.{side}", 0, options.pairs) for path, side in ((english, "en"), (german, "de"))]
    mono = take(german, out / "mono.de", options.pairs, options.others)
    baseline, backward, with_back = (out / f"run-{name}" for name in ("baseline", "backward", "with-back"))
    # At the same time: neither needs a whole GPU.
    with ThreadPoolExecutor() as pool:
        forward = pool.submit(train, options, baseline, [join(pairs)], options.valid)
        yield train(options, backward, [join(pairs[::-1])], options.valid[::-1])
        yield forward.result()
    yield synthesize(options, backward, mono)
    synthetic = [out / "synthetic" / f"corpus.{side}" for side in ("en", "de")]
    yield train(options, with_back, [f"{join(pairs)}@{options.repeat}", join(synthetic)], options.valid)
    for name, files in (("valid", options.valid), ("test", options.test)):
        before, after = (bleu(run, *files) for run in (baseline, with_back))
        yield Figure(f"{name}: BLEU of the pairs alone", f"{before:.2f}", "", before)
        yield Figure(f"{name}: with back-translation", f"{after:.2f} ({after - before:+.2f})", "+2", after)


def take(path: Path, out: Path, start: int, count: int) -> Path:
    """Some lines of a file, plain or compressed, in a plain file that is not written twice."""
    if not out.exists():
        with replacing(out) as draft, draft.open("wb") as file:
            file.writelines(line + b"\n" for line in islice(LineReader(path), start, start + count))
    return out


def join(files: list[Path]) -> str:
    return ",".join(map(str, files))


def train(options: argparse.Namespace, run: Path, sources: list[str], valid: list[Path]) -> Figure:
    """Prepare and train, or resume."""
    data = Path(f"{run}-data")
    vocabulary = f"tokenizer.vocabulary_size={options.vocabulary}"
    run_dragoman("prepare", *sources, "--valid", join(valid), "--out", data, vocabulary)
    every = max(1, options.steps // EVALUATIONS)
    run_dragoman(
        "train", options.recipe, "--data", data, "--out", run, f"training.steps={options.steps}",
        f"model.dropout={options.dropout}", "training.label_smoothing=0.1", f"evaluation.every={every}",
        "evaluation.sentences=1000", f"checkpoint.every={every}", f"schedule.warmup_steps={min(500, every)}",
        *options.set,
    )  # fmt: skip
    report = json.loads(dragoman_output("report", run, "--json"))
    curve = ", ".join(f"{each['bleu']:.1f}" for each in report["evaluations"])
    seconds = report["elapsed_s"]
    return Figure(f"{run.name}: seconds; BLEU of the evaluations", f"{seconds:.0f} s; {curve}", "", seconds)


def synthesize(options: argparse.Namespace, backward: Path, mono: Path) -> Figure:
    out, drawing = options.out / "synthetic", ["--sample"] if options.sample else []
    run_dragoman("synthesize", backward, mono, "--back", "--tag", TAG, *drawing, "--out", out)
    seconds = json.loads(dragoman_output("report", out, "--json"))["elapsed_s"]
    return Figure("back-translation of the others: seconds", f"{seconds:.0f} s", "", seconds)


def bleu(run: Path, source: Path, reference: Path) -> float:
    scored = json.loads(dragoman_output("score", run, "--src", source, "--ref", reference, "--json"))
    return float(scored["bleu"]["value"])


if __name__ == "__main__":
    main()

"""Back-translation on europarl: pairs alone against pairs with the back-translated German side of others.

The commands are those of a user: `prepare` and `train` of a model from German to English and of the baseline,
`synthesize --back` of the German side of other pairs, `prepare` and `train` with both, `score`. Both runs have the same
recipe and the same number of steps. Needs a GPU and hours; `--pairs 2000 --others 4000 --steps 50` tries it.

    python -m benchmarks.back_translation C.en C.de --valid V.en V.de --test T.en T.de [--sample] [--out FOLDER]
"""

import argparse
import json
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.command_line import dragoman_command, make_parser, run_dragoman
from benchmarks.reporting import Figure, print_figures

TAG = "<BT>"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("corpus", type=Path, nargs=2)
    parser.add_argument("--valid", type=Path, nargs=2, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--others", type=int, default=500_000, help="pairs whose German side is translated back")
    parser.add_argument("--recipe", default="transformer-base")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--sample", action="store_true", help="draw translations instead of beam search")
    parser.add_argument("--out", type=Path, default=Path("back-translation"))
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    print_figures("back_translation", measure(options), pairs=options.pairs, others=options.others, steps=options.steps)


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    out = options.out
    english, german = options.corpus
    pairs = [take(path, out / f"pairs.{side}", 0, options.pairs) for path, side in ((english, "en"), (german, "de"))]
    mono = take(german, out / "mono.de", options.pairs, options.others)
    baseline = train(options, "baseline", pairs)
    backward = train(options, "backward", pairs[::-1], options.valid[::-1])
    drawing = ["--sample"] if options.sample else []
    run_dragoman("synthesize", backward, mono, "--back", "--tag", TAG, *drawing, "--out", out / "synthetic")
    synthetic = [out / "synthetic" / f"corpus.{side}" for side in ("en", "de")]
    joined = [
        join(out / f"joined.{path.suffix[1:]}", path, other) for path, other in zip(pairs, synthetic, strict=True)
    ]
    with_back = train(options, "with-back", joined)
    for name, (source, reference) in (("valid", options.valid), ("test", options.test)):
        before, after = (bleu(run, source, reference) for run in (baseline, with_back))
        yield Figure(f"{name}: BLEU of the pairs alone", f"{before:.1f}", "", before)
        yield Figure(f"{name}: with back-translation", f"{after:.1f} ({after - before:+.1f})", "+2", after)


def take(path: Path, out: Path, start: int, count: int) -> Path:
    with path.open("rb") as lines, out.open("wb") as file:
        file.writelines(islice(lines, start, start + count))
    return out


def join(out: Path, *paths: Path) -> Path:
    out.write_bytes(b"".join(path.read_bytes() for path in paths))
    return out


def train(options: argparse.Namespace, name: str, corpus: list[Path], valid: list[Path] | None = None) -> Path:
    data, run = options.out / f"data-{name}", options.out / f"run-{name}"
    run_dragoman("prepare", *corpus, "--valid", ",".join(map(str, valid or options.valid)), "--out", data)
    run_dragoman("train", options.recipe, "--data", data, "--out", run, f"training.steps={options.steps}")
    return run


def bleu(run: Path, source: Path, reference: Path) -> float:
    command = dragoman_command("score", run, "--src", source, "--ref", reference, "--json")
    scored = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(scored["bleu"]["value"])


if __name__ == "__main__":
    main()

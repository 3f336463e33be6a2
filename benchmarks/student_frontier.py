"""Size and speed of small models on one CPU core, against transformer-base: the measurements behind `student`.

Each cell of the grid is exported to CTranslate2 in int8 and translates the first sentences of newstest2014 on one
thread. Speed and size do not depend on what a model has learned, so the weights are random; each translation is as long
as the reference in the cell's own vocabulary, so that a smaller vocabulary pays for its longer sentences. The cells
alternate, and the time is that of the CPU, which other work on the machine hardly changes.

With `--train`, the chosen cells are trained through the command line on these files, such as those of the folder
`synthetic` of a distillation, for the column BLEU; that takes a GPU. `--out` keeps the runs, and the rows in
`frontier.json`: the same command resumes. Cells with a row there are not measured again, and cells with a BLEU are not
trained again, so that speeds may come from one machine and BLEU from another. `--picture` draws the frontier.

    python -m benchmarks.student_frontier [--sentences 128] [--rounds 5] [--cells 8-1-256-1536-8k] [--out FOLDER]
    python -m benchmarks.student_frontier --train corpus.en,corpus.de --cells 8-1-256-1536-8k --out FOLDER
    python -m benchmarks.student_frontier --picture docs/images/student-frontier.svg --out FOLDER
"""

import argparse
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import CORPORA, EUROPARL, NEWSTEST, read_split
from benchmarks.frontier_picture import draw
from benchmarks.reporting import print_json, print_row
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.decoding.one_core_speed import load_on_one_core, measure_cpu_s, search_with_lengths
from dragoman.decoding.scoring import score
from dragoman.decoding.translator_loading import load
from dragoman.distillation.size_variants import export_random
from dragoman.exporting.exporter import file_sizes
from dragoman.files import read_json, write_json
from dragoman.model.architecture import Architecture, architecture_of, parameter_count
from dragoman.model.model_folder import ModelDescription
from dragoman.settings import DecodingSettings, TokenizerSettings

BASE = "transformer-base"
TOKENIZER_PAIRS = 100_000
CELLS = (
    "6-2-256-1536-32k", "6-2-256-1536-16k", "6-2-256-1536-8k", "6-2-256-1024-8k", "6-1-256-1536-16k",
    "6-1-256-1536-8k", "6-1-256-1024-8k", "8-1-256-1536-8k", "8-1-256-1024-8k", "12-1-256-1536-8k", "12-1-256-1024-8k",
    "6-2-384-1536-8k", "6-1-384-1536-8k", "12-1-192-768-8k", "6-1-192-768-8k", "4-1-192-768-8k", "6-1-192-768-4k",
    "6-1-128-512-8k",
)  # fmt: skip
"""Encoder layers, decoder layers, width, feed-forward dimension, pieces."""
BEAMS = {BASE: (1, 4)}
ROWS_FILE = "frontier.json"


@dataclass(frozen=True)
class FrontierCell:
    """A row of the table."""

    name: str
    parameters: int
    size_bytes: int
    speedup: float
    """Words per second against transformer-base, both greedy."""
    speedup_as_shipped: float
    """Greedy, against transformer-base with the beam of 4 of its recipe."""
    bleu: float | None = None


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", nargs="+", help="cells to measure, or to train (default: all)")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora")
    parser.add_argument("--train", metavar="SOURCE,TARGET", help="train the cells on these files, for BLEU")
    parser.add_argument("--steps", type=int, default=6000, help="training steps of each cell")
    parser.add_argument("--out", type=Path, help="folder of the rows and runs; resumed if it exists")
    parser.add_argument("--picture", type=Path, help="SVG file to draw")
    options = parser.parse_args()
    if options.train and not options.out:
        parser.error("--train needs --out, for its runs.")
    rows = read_rows(options.out, options.cells)
    if not rows:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(Path(folder), options.cells or CELLS, options)
        write_rows(options.out, rows)
    for number, row in enumerate(rows):
        if options.train and row.bleu is None and (row.name in options.cells if options.cells else row.name != BASE):
            rows[number] = replace(row, bleu=train_cell(row.name, options))
            write_rows(options.out, rows)
    print_rows(rows)
    if options.picture:
        options.picture.write_text(draw([asdict(row) for row in rows]))
    print_json("student_frontier", sentences=options.sentences, rows=[asdict(row) for row in rows])


def read_rows(out: Path | None, cells: Sequence[str] | None) -> list[FrontierCell]:
    """The rows of earlier commands, which must have these cells; none without a file."""
    if out is None or not (out / ROWS_FILE).exists():
        return []
    rows = [FrontierCell(**row) for row in read_json(out / ROWS_FILE)]
    if missing := set(cells or ()).difference(row.name for row in rows):
        raise SystemExit(f"{out / ROWS_FILE} has no row of {', '.join(sorted(missing))}: choose another --out.")
    return rows


def write_rows(out: Path | None, rows: list[FrontierCell]) -> None:
    if out:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / ROWS_FILE, [asdict(row) for row in rows])


def parse_cell(name: str) -> Architecture:
    match = re.fullmatch(r"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)k", name)
    if match is None:
        raise SystemExit(f"{name} is not a cell: write ENCODER-DECODER-WIDTH-FEED_FORWARD-VOCABULARYk.")
    encoder, decoder, width, feed_forward, pieces = map(int, match.groups())
    return architecture_of("student").replaced(
        encoder_layers=encoder, decoder_layers=decoder, d_model=width, feed_forward=feed_forward,
        vocabulary=1024 * pieces,
    )  # fmt: skip


def measure(folder: Path, cells: Sequence[str], options: argparse.Namespace) -> list[FrontierCell]:
    sources, references = read_split(NEWSTEST, "newstest2014", options.corpora)
    pairs = list(zip(sources, references, strict=True))[: options.sentences]
    architectures = {BASE: architecture_of(BASE), **{name: parse_cell(name) for name in cells}}
    vocabularies = {architecture.vocabulary for architecture in architectures.values()}
    tokenizers = train_tokenizers(vocabularies, folder, options.corpora)
    exports: dict[str, Path] = {}
    works: dict[str, Callable[[], object]] = {}
    for name, architecture in architectures.items():
        tokenizer = tokenizers[architecture.vocabulary]
        description = ModelDescription(architecture, Languages("en", "de"), DecodingSettings(), tokenizer)
        exports[name] = export_random(description, folder / name)
        translator = load_on_one_core(exports[name])
        works |= {f"{name} {beam}": search_with_lengths(translator, pairs, beam) for beam in BEAMS.get(name, (1,))}
    times_s = measure_cpu_s(works, options.rounds)

    def speedup(name: str, base_beam: int) -> float:
        ratios = (base / own for base, own in zip(times_s[f"{BASE} {base_beam}"], times_s[f"{name} 1"], strict=True))
        return round(statistics.median(ratios), 2)

    return [
        FrontierCell(
            name, parameter_count(architecture), sum(file_sizes(exports[name]).values()), speedup(name, 1),
            speedup(name, 4),
        )
        for name, architecture in architectures.items()
    ]  # fmt: skip


def train_tokenizers(sizes: set[int], folder: Path, corpora: Path) -> dict[int, Tokenizer]:
    sides = read_split(EUROPARL, "train", corpora)
    words = count_words([line for side in sides for line in side[:TOKENIZER_PAIRS]])
    for size in sizes:
        train(words, TokenizerSettings(vocabulary_size=size), folder / f"{size}.model")
    return {size: Tokenizer.load(folder / f"{size}.model") for size in sizes}


def train_cell(name: str, options: argparse.Namespace) -> float:
    """BLEU of a cell's int8 export on newstest2014, after training with the other settings of `student`."""
    cell, folder = parse_cell(name), options.out
    sides = read_split(NEWSTEST, "newstest2014", options.corpora)
    data, run, export = folder / f"data-{cell.vocabulary}", folder / f"{name}-run", folder / f"{name}-export"
    vocabulary = f"tokenizer.vocabulary_size={cell.vocabulary}"
    run_dragoman("prepare", options.train, "-l", "en-de", "--recipe", "student", "--out", data, vocabulary)
    shape = {field: getattr(cell, field) for field in ("encoder_layers", "decoder_layers", "d_model", "feed_forward")}
    settings = [f"training.steps={options.steps}", f"schedule.warmup_steps={min(500, options.steps // 10)}"]
    settings += [f"evaluation.every={options.steps}", "evaluation.bleu=false"]
    settings += [f"model.{field}={value}" for field, value in shape.items()]
    run_dragoman("train", "student", "--data", data, "--out", run, *settings)
    run_dragoman("export", run, "--out", export, "--overwrite")
    translations = load(export, "cpu").translate(sides[0])
    return round(score(translations, sides[1]).bleu.value, 2)


def print_rows(rows: list[FrontierCell]) -> None:
    print_row(
        "encoder-decoder-width-feed-forward-vocabulary", "parameters", "int8 size", "greedy, against greedy",
        "greedy, against beam 4", "BLEU",
    )  # fmt: skip
    print_row(*["---"] * 6)
    for row in rows:
        ratios = (f"{ratio:.1f} x" for ratio in (row.speedup, row.speedup_as_shipped))
        bleu = "" if row.bleu is None else f"{row.bleu:.1f}"
        print_row(row.name, f"{row.parameters / 1e6:.1f} M", f"{row.size_bytes / 1e6:.1f} MB", *ratios, bleu)


if __name__ == "__main__":
    main()

"""Speed and memory of `dragoman prepare`, compared with the steps of the original recipe on the same text.

    python -m benchmarks.prepare [--pairs 5000000]

The original recipe: decompress, a Perl filter of 1 to 80 words, `shuf`, SentencePiece training, and SentencePiece's
Python `encode` line by line. `dragoman prepare` does more on the same lines (cleaning rules, deduplication,
shards, a manifest with hashes). Both write all their results to disk. They alternate in one run.

As users run them, the original recipe trains its tokenizer on all sentences, and `dragoman prepare` on a sample of
100,000 pairs. So they are also compared like for like: both on all pairs, and both on 100,000. `dragoman prepare` uses
both cores, the original recipe mostly one: CPU times are compared too.

The larger corpora are Europarl, repeated: a number before every line makes each copy different, so that no pair is a
duplicate of another. `dragoman prepare` runs at two sizes, to show that memory does not grow; the original recipe at
the smaller one.
"""

import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import EUROPARL, LANGUAGES, split_files
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import measure_s, median_s

EUROPARL_PAIRS = 600_020
VOCABULARY_SIZE = 32768
SAMPLE_PAIRS = 100_000
"""Default of `tokenizer.sample_pairs`."""
HELP_ROUNDS = 9
AS_RUN = "as users run them: tokenizer trained on all pairs by the original recipe, on 100,000 by dragoman prepare"
ON_ALL = "like for like: both tokenizers trained on all pairs"
ON_SAMPLE = "like for like: both tokenizers trained on 100,000 pairs"

ORIGINAL_ENCODER = """
import sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="\\n") as lines, open(sys.argv[3], "w", encoding="utf-8") as out:
    for line in lines:
        out.write(" ".join(processor.encode(line.rstrip("\\n"), out_type=str)) + "\\n")
"""
ORIGINAL_FILTER = r"""
    my ($source, $target) = split /\t/; chomp $target;
    my $s = () = $source =~ /\S+/g; my $t = () = $target =~ /\S+/g;
    print if $s >= 1 && $s <= 80 && $t >= 1 && $t <= 80;
"""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000, help="pairs of the largest repeated corpus")
    parser.add_argument("--rounds", type=int, default=3, help="rounds on the real corpus, both sides alternating")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_figures("prepare", measure(Path(folder), options.rounds, options.pairs))


def measure(folder: Path, rounds: int, pairs: int) -> Iterator[Figure]:
    yield from measure_europarl(folder, rounds)
    small = pairs * 2 // 5
    for count in (small, pairs):
        files = repeat_europarl(folder, count)
        ours = prepare(*files, folder / f"ours-{count}", SAMPLE_PAIRS)
        if count == small:
            original = prepare_as_original(*files, folder / "original-small", count)
            yield ratio_figure(f"at {count:,} pairs", AS_RUN, original.wall_s / ours.wall_s)
            ours_on_all = prepare(*files, folder / "ours-small-all", count)
            yield ratio_figure(f"at {count:,} pairs", ON_ALL, original.wall_s / ours_on_all.wall_s)
        rate = count / ours.wall_s
        yield Figure(f"pairs/s at {count:,} pairs, dragoman prepare", f"{rate:,.0f}", "", rate)
        peak_mb = ours.peak_bytes / 1e6
        yield Figure(f"peak memory at {count:,} pairs", f"{peak_mb:,.0f} MB", "under 1,500 MB", peak_mb)
    help_s = median_s(lambda: run_dragoman("--help"), HELP_ROUNDS)
    yield Figure("dragoman --help", f"{help_s:.2f} s", "under 0.3 s", help_s)


def measure_europarl(folder: Path, rounds: int) -> Iterator[Figure]:
    """The real corpus, both sides with a tokenizer trained on all pairs and on a sample. Medians of the rounds."""
    files = split_files(EUROPARL, "train")
    costs: dict[tuple[str, int], list[Cost]] = defaultdict(list)
    for number in range(rounds):
        for pairs in (EUROPARL_PAIRS, SAMPLE_PAIRS):
            costs["original recipe", pairs].append(prepare_as_original(*files, folder / f"original-{number}", pairs))
            costs["dragoman prepare", pairs].append(prepare(*files, folder / f"ours-{pairs}-{number}", pairs))
    for (name, pairs), measured in costs.items():
        rate = EUROPARL_PAIRS / statistics.median(cost.wall_s for cost in measured)
        text = f"pairs/s on {EUROPARL} ({EUROPARL_PAIRS:,} pairs), {name}, tokenizer trained on {pairs:,} pairs"
        yield Figure(text, f"{rate:,.0f}", "", rate)
    for condition, original_pairs, our_pairs in (
        (AS_RUN, EUROPARL_PAIRS, SAMPLE_PAIRS),
        (ON_ALL, EUROPARL_PAIRS, EUROPARL_PAIRS),
        (ON_SAMPLE, SAMPLE_PAIRS, SAMPLE_PAIRS),
    ):
        both = list(zip(costs["original recipe", original_pairs], costs["dragoman prepare", our_pairs], strict=True))
        wall = statistics.median(original.wall_s / ours.wall_s for original, ours in both)
        yield ratio_figure(f"on {EUROPARL}", condition, wall)
        cpu = statistics.median(original.cpu_s / ours.cpu_s for original, ours in both)
        yield Figure(f"ratio of CPU times on {EUROPARL}, {condition}", f"{cpu:.2f}", "", cpu)


def ratio_figure(corpus: str, condition: str, ratio: float) -> Figure:
    return Figure(f"ratio {corpus}, {condition}", f"{ratio:.2f}", "at least 5", ratio)


@dataclass(frozen=True)
class Cost:
    """What a preparation took. CPU time is that of all processes together."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure_cost(work: Callable[[], object]) -> Cost:
    before = os.times()
    with PeakMemory() as memory:
        wall_s = measure_s(work)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall_s, cpu_s, memory.peak_bytes)


class PeakMemory:
    """Peak memory of all child processes together, as proportional set size: no shared page counts twice."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.25):
            total = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    memory = child.memory_full_info()
                except psutil.Error:
                    continue
                total += memory.pss
            self.peak_bytes = max(self.peak_bytes, total)


def prepare(source: Path, target: Path, folder: Path, tokenizer_pairs: int) -> Cost:
    """Run `dragoman prepare`, with a tokenizer trained on a number of pairs."""
    settings = (f"tokenizer.vocabulary_size={VOCABULARY_SIZE}", f"tokenizer.sample_pairs={tokenizer_pairs}")
    arguments = ("prepare", f"{source},{target}", "--languages", "en-de", "--out", folder / "data", *settings)
    return measure_cost(lambda: run_dragoman(*arguments))


def prepare_as_original(source: Path, target: Path, folder: Path, tokenizer_pairs: int) -> Cost:
    """Run the steps of the original recipe, with a tokenizer trained on a number of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    read = "xz -dc" if source.suffix == ".xz" else "cat"
    steps = [
        f"paste <({read} {source}) <({read} {target}) | perl -ne '{ORIGINAL_FILTER}' > {folder}/clean.tsv",
        f"shuf {folder}/clean.tsv > {folder}/shuffled.tsv",
    ]
    for column, language in enumerate(LANGUAGES, 1):
        steps.append(f"cut -f{column} {folder}/shuffled.tsv > {folder}/train.{language}")
        steps.append(f"head -n {tokenizer_pairs} {folder}/train.{language} > {folder}/sample.{language}")
    train = (
        "import sentencepiece; sentencepiece.SentencePieceTrainer.train("
        f"input=['{folder}/sample.en', '{folder}/sample.de'], model_prefix='{folder}/bpe', "
        f"vocab_size={VOCABULARY_SIZE}, model_type='bpe', minloglevel=2)"
    )
    commands = [["bash", "-c", step] for step in steps] + [[sys.executable, "-c", train]]
    for language in LANGUAGES:
        files = [f"{folder}/bpe.model", f"{folder}/train.{language}", f"{folder}/train.{language}.pieces"]
        commands.append([sys.executable, "-c", ORIGINAL_ENCODER, *files])
    return measure_cost(lambda: [subprocess.run(command, check=True) for command in commands])


def repeat_europarl(folder: Path, pairs: int) -> tuple[Path, Path]:
    """Write Europarl repeatedly, up to a number of pairs, with the number of the copy before every line."""
    source, target = (folder / f"repeated-{pairs}.{language}" for language in LANGUAGES)
    for original, path in zip(split_files(EUROPARL, "train"), (source, target), strict=True):
        with lzma.open(original, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        with path.open("wb") as out:
            written, copy = 0, 0
            while written < pairs:
                part = lines[: pairs - written]
                out.write(b"".join(b"%d. %b\n" % (copy, line) for line in part))
                written, copy = written + len(part), copy + 1
    return source, target


if __name__ == "__main__":
    main()

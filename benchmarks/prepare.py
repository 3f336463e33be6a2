"""Speed and memory of `dragoman prepare`, compared with the steps of the original recipe on the same text.

    python -m benchmarks.prepare [--pairs 5000000]

The original recipe: decompress, a Perl filter of 1 to 80 words, `shuf`, SentencePiece training on all sentences, and
SentencePiece's Python `encode` line by line. `dragoman prepare` does more on the same lines (eleven cleaning rules,
deduplication, shards, a manifest with hashes), but trains the tokenizer on a sample of 100,000 pairs. Both write all
their results to disk. They alternate in one run.

The larger corpora are Europarl, repeated: a number before every line makes each copy different, so that no pair is a
duplicate of another. `dragoman prepare` runs at two sizes, to show that memory does not grow; the original recipe at
the smaller one.
"""

import lzma
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.command_line import dragoman_command, make_parser, run_dragoman
from benchmarks.corpora import EUROPARL, LANGUAGES, split_files
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import median_s

EUROPARL_PAIRS = 600_020
VOCABULARY_SIZE = 32768
HELP_ROUNDS = 9

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
        source, target = repeat_europarl(folder, count)
        ours_s, peak_bytes = prepare(source, target, folder / f"ours-{count}")
        if count == small:
            original_s = prepare_as_original(source, target, folder / "original-small")
            ratio = original_s / ours_s
            yield Figure(f"ratio at {count:,} pairs", f"{ratio:.2f}", "at least 5", ratio)
        yield Figure(f"pairs/s at {count:,} pairs, dragoman prepare", f"{count / ours_s:,.0f}", "", count / ours_s)
        peak_mb = peak_bytes / 1e6
        yield Figure(f"peak memory at {count:,} pairs", f"{peak_mb:,.0f} MB", "under 1,500 MB", peak_mb)
    help_s = median_s(lambda: run_dragoman("--help"), HELP_ROUNDS)
    yield Figure("dragoman --help", f"{help_s:.2f} s", "under 0.3 s", help_s)


def measure_europarl(folder: Path, rounds: int) -> Iterator[Figure]:
    """The real corpus: the round with the median ratio."""
    source, target = split_files(EUROPARL, "train")
    times_s = []
    for number in range(rounds):
        original_s = prepare_as_original(source, target, folder / f"original-{number}")
        ours_s, _ = prepare(source, target, folder / f"ours-{number}")
        times_s.append((original_s, ours_s))
    original_s, ours_s = sorted(times_s, key=lambda times: times[0] / times[1])[rounds // 2]
    for name, seconds in (("original recipe", original_s), ("dragoman prepare", ours_s)):
        rate = EUROPARL_PAIRS / seconds
        yield Figure(f"pairs/s on {EUROPARL} ({EUROPARL_PAIRS:,} pairs), {name}", f"{rate:,.0f}", "", rate)
    yield Figure(f"ratio on {EUROPARL}", f"{original_s / ours_s:.2f}", "at least 5", original_s / ours_s)


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


def prepare(source: Path, target: Path, folder: Path) -> tuple[float, int]:
    """Run `dragoman prepare`. Returns seconds and peak memory in bytes."""
    command = dragoman_command(
        "prepare", f"{source},{target}", "--languages", "en-de", "--out", folder / "data",
        f"tokenizer.vocabulary_size={VOCABULARY_SIZE}",
    )  # fmt: skip
    started_at = time.perf_counter()
    with PeakMemory() as memory:
        subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started_at, memory.peak_bytes


def prepare_as_original(source: Path, target: Path, folder: Path) -> float:
    """Run the steps of the original recipe. Returns seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    started_at = time.perf_counter()
    read = "xz -dc" if source.suffix == ".xz" else "cat"
    pipe = f"paste <({read} {source}) <({read} {target}) | perl -ne '{ORIGINAL_FILTER}' > {folder}/clean.tsv"
    subprocess.run(["bash", "-c", pipe], check=True)
    subprocess.run(["bash", "-c", f"shuf {folder}/clean.tsv > {folder}/shuffled.tsv"], check=True)
    for column, language in enumerate(LANGUAGES, 1):
        subprocess.run(["bash", "-c", f"cut -f{column} {folder}/shuffled.tsv > {folder}/train.{language}"], check=True)
    train = (
        "import sentencepiece; sentencepiece.SentencePieceTrainer.train("
        f"input=['{folder}/train.en', '{folder}/train.de'], model_prefix='{folder}/bpe', vocab_size={VOCABULARY_SIZE}, "
        "model_type='bpe', minloglevel=2)"
    )
    subprocess.run([sys.executable, "-c", train], check=True)
    for language in LANGUAGES:
        files = [f"{folder}/bpe.model", f"{folder}/train.{language}", f"{folder}/train.{language}.pieces"]
        subprocess.run([sys.executable, "-c", ORIGINAL_ENCODER, *files], check=True)
    return time.perf_counter() - started_at


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

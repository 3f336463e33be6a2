"""How fast `dragoman prepare` is, against the steps of the original recipe on the same text.

    python -m benchmarks.prepare [--pairs 5000000]

The original recipe is what people run today: decompress, a Perl filter of 1 to 80 words, `shuf`, SentencePiece training
on all sentences, and SentencePiece's Python `encode` line by line. Ours does more (twelve cleaning rules, duplicates, a
manifest with hashes) on the same lines. Both sides write all their results to disk, one after the other, in one run.

The second corpus is the first, multiplied: each copy gets a number in front of every line, so that no pair is a
duplicate of another. Ours runs at two sizes, to show that memory does not grow; the original at the smaller one.
"""

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

EUROPARL = Path(__file__).resolve().parents[2] / "shared" / "data" / "europarl-en-de"
VOCABULARY = 32768
LANGUAGES = ("en", "de")

ORIGINAL_ENCODER = """
import sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="\\n") as lines, open(sys.argv[3], "w", encoding="utf-8") as out:
    for line in lines:
        out.write(" ".join(processor.encode(line.rstrip("\\n"), out_type=str)) + "\\n")
"""
FILTER = r"""
    my ($source, $target) = split /\t/; chomp $target;
    my $s = () = $source =~ /\S+/g; my $t = () = $target =~ /\S+/g;
    print if $s >= 1 && $s <= 80 && $t >= 1 && $t <= 80;
"""


class MemoryWatch:
    """The most memory that this process's children had together: proportional shares, so that no page counts twice."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.25):
            total = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    memory = child.memory_full_info()
                except psutil.Error:
                    continue
                total += memory.pss
            self.peak_bytes = max(self.peak_bytes, total)


def ours(source: Path, target: Path, folder: Path) -> tuple[float, int]:
    """Seconds, and peak memory in bytes."""
    command = [
        sys.executable, "-m", "dragoman", "prepare", f"{source},{target}", "--languages", "en-de",
        "--out", str(folder / "data"), f"tokenizer.vocabulary_size={VOCABULARY}",
    ]  # fmt: skip
    started = time.perf_counter()
    with MemoryWatch() as memory:
        subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started, memory.peak_bytes


def original(source: Path, target: Path, folder: Path) -> float:
    """Seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    read = "xz -dc" if source.suffix == ".xz" else "cat"
    pipe = f"paste <({read} {source}) <({read} {target}) | perl -ne '{FILTER}' > {folder}/clean.tsv"
    subprocess.run(["bash", "-c", pipe], check=True)
    subprocess.run(["bash", "-c", f"shuf {folder}/clean.tsv > {folder}/shuffled.tsv"], check=True)
    for column, language in enumerate(LANGUAGES, 1):
        subprocess.run(["bash", "-c", f"cut -f{column} {folder}/shuffled.tsv > {folder}/train.{language}"], check=True)
    train = (
        "import sentencepiece; sentencepiece.SentencePieceTrainer.train("
        f"input=['{folder}/train.en', '{folder}/train.de'], model_prefix='{folder}/bpe', vocab_size={VOCABULARY}, "
        "model_type='bpe', minloglevel=2)"
    )
    subprocess.run([sys.executable, "-c", train], check=True)
    for language in LANGUAGES:
        files = [f"{folder}/bpe.model", f"{folder}/train.{language}", f"{folder}/train.{language}.pieces"]
        subprocess.run([sys.executable, "-c", ORIGINAL_ENCODER, *files], check=True)
    return time.perf_counter() - started


def multiply(folder: Path, pairs: int) -> tuple[Path, Path]:
    """Europarl again and again up to a number of pairs, every copy's lines made different."""
    paths = (folder / f"big-{pairs}.en", folder / f"big-{pairs}.de")
    for path, language in zip(paths, LANGUAGES, strict=True):
        with lzma.open(EUROPARL / f"train.{language}.xz", "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        with path.open("wb") as out:
            written, copy = 0, 0
            while written < pairs:
                part = lines[: pairs - written]
                out.write(b"".join(b"%d. %b\n" % (copy, line) for line in part))
                written, copy = written + len(part), copy + 1
    return paths


def help_seconds() -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dragoman", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000, help="pairs of the multiplied corpus")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions on the real corpus, alternating")
    options = parser.parse_args()
    results: dict[str, float] = {"help_s": help_seconds()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, target = (EUROPARL / f"train.{language}.xz" for language in LANGUAGES)
        ratios, seconds = [], []
        for turn in range(options.rounds):
            theirs_s = original(source, target, folder / f"original-{turn}")
            ours_s, _ = ours(source, target, folder / f"ours-{turn}")
            ratios.append(theirs_s / ours_s)
            seconds.append((theirs_s, ours_s))
            print(f"europarl, round {turn + 1}: original {theirs_s:.1f} s, ours {ours_s:.1f} s", flush=True)
        middle = sorted(range(len(ratios)), key=ratios.__getitem__)[len(ratios) // 2]
        results["europarl_ratio"] = ratios[middle]
        results["europarl_original_s"], results["europarl_ours_s"] = seconds[middle]
        small, large = options.pairs * 2 // 5, options.pairs
        for pairs in (small, large):
            paths = multiply(folder, pairs)
            ours_s, peak_bytes = ours(*paths, folder / f"ours-{pairs}")
            results[f"ours_{pairs}_s"], results[f"ours_{pairs}_peak_mb"] = ours_s, peak_bytes / 1e6
            print(f"{pairs:,} pairs: ours {ours_s:.1f} s, {peak_bytes / 1e6:.0f} MB", flush=True)
            if pairs == small:
                theirs_s = original(*paths, folder / "original-small")
                results[f"original_{pairs}_s"] = theirs_s
                print(f"{pairs:,} pairs: original {theirs_s:.1f} s", flush=True)

    rows = [
        ("pairs/s on europarl-en-de (600,020 pairs), original recipe", 600_020 / results["europarl_original_s"], ""),
        ("the same, dragoman prepare", 600_020 / results["europarl_ours_s"], ""),
        ("ratio", results["europarl_ratio"], "at least 5"),
        (f"ratio at {small:,} pairs", results[f"original_{small}_s"] / results[f"ours_{small}_s"], "at least 5"),
        (f"pairs/s at {large:,} pairs, dragoman prepare", large / results[f"ours_{large}_s"], ""),
        (f"peak memory at {small:,} pairs, MB", results[f"ours_{small}_peak_mb"], "under 1,500"),
        (f"peak memory at {large:,} pairs, MB", results[f"ours_{large}_peak_mb"], "under 1,500"),
        ("dragoman --help, s", results["help_s"], "under 0.3"),
    ]
    print("\n| figure | measured | target |\n|---|---|---|")
    for name, value, wanted in rows:
        print(f"| {name} | {value:,.2f} | {wanted} |" if value < 100 else f"| {name} | {value:,.0f} | {wanted} |")
    print(json.dumps({"benchmark": "prepare", **{key: round(value, 3) for key, value in results.items()}}))


if __name__ == "__main__":
    main()

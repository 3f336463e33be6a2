"""`dragoman synthesize`: bytes on hosts that are killed, memory with the length of the text, speed against `generate`.

- kills: three hosts in namespaces that are killed, frozen or cut off every few seconds in the middle of a shard, and
  sometimes the command itself; the corpus against that of one undisturbed machine. Needs root.
- memory: peak of the coordinator for texts of several lengths. A worker that copies lines takes the place of the
  translation, whose memory depends on the shard alone.
- speed: lines a second from text to text, without the start of processes and the loading of the model, against
  transformers' `generate` with the same weights, beam, precision and limits of length, in batches of similar length;
  both alternate. Needs a run of an architecture that transformers has, such as transformer-base, and a text.

    python -m benchmarks.synthesis [--only kills memory] [--kills 20] [--lines 1000000 10000000]
    python -m benchmarks.synthesis --only speed --model RUN --text news.en [--device cuda]
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks import toy_models
from benchmarks.command_line import dragoman_command, dragoman_output, make_parser, run_dragoman
from benchmarks.reporting import Figure, print_figures
from benchmarks.synthesis_faults import FaultyHosts, count_losses
from dragoman.corpus import demo
from dragoman.files import read_json
from dragoman.settings import DecodingSettings
from dragoman.synthesis.synthesis_folder import SynthesisFolder
from dragoman.text_lines import read_text_lines

SPEED_BEAM = 4
WARM_UP_LINES = 2000
CORPUS_FILES = ("corpus.en", "corpus.de")
KILLED_MODEL_STEPS = 150
KILLED_SHARD_LINES = 100
"""Enough for a second or more, so that faults come in the middle of a shard."""
LINES_PER_KILL = 600


def main() -> None:
    sections = {"kills": measure_kills, "memory": measure_memory, "speed": measure_speed}
    parser = make_parser(__doc__, sections, default=("kills", "memory"))
    parser.add_argument("--kills", type=int, default=20, help="machines and coordinators that are lost")
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the speed, in which both alternate")
    parser.add_argument(
        "--peer-lines", type=int, default=4096, help="lines that `generate` translates, drawn at random"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = (figure for name in options.only for figure in sections[name](options, Path(folder)))
        print_figures("synthesis", figures, device=options.device)


def make_model(folder: Path) -> Path:
    """An export for CTranslate2 of a small model with random weights."""
    toy_models.make_random_model(folder / "torch", "tiny", DecodingSettings(beam=2, max_length_ratio=0.1))
    run_dragoman("export", folder / "torch", "--out", folder / "int8")
    return folder / "int8"


def write_text(path: Path, lines: int) -> Path:
    sentences = [source for source, _ in demo.generate(5000, seed=9, valid=1, test=1).train]
    with path.open("w") as file:
        for number in range(lines):
            file.write(f"{sentences[number % len(sentences)]} {number}\n")
    return path


def measure_kills(options: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    from tests.system.hosts import Hosts

    # A model that was trained for a moment, so that most lines have a translation of their own, and no rules, so that
    # all of them are compared.
    toy_models.make_trained_model(folder / "trained", steps=KILLED_MODEL_STEPS)
    run_dragoman("export", folder / "trained", "--out", folder / "trained-int8")
    lines = LINES_PER_KILL * options.kills
    text = write_text(folder / "text.en", lines)
    arguments = ("synthesize", folder / "trained-int8", text, "--shard-lines", str(KILLED_SHARD_LINES))
    arguments = (*arguments, "cleaning.rules=[]", "decoding.max_length_ratio=0.5")
    run_dragoman(*arguments, "--out", folder / "alone")
    with Hosts(["a", "b", "c"]) as hosts:
        command = dragoman_command(*arguments, "--out", folder / "disturbed", "--hosts", "a,b,c")
        command += ["--ssh-config", str(hosts.ssh_config)]
        faulty = FaultyHosts(hosts, command, folder / "disturbed", -(-lines // KILLED_SHARD_LINES))
        faulty.run(options.kills)
    sides = {name: [(folder / out / name).read_bytes() for out in ("alone", "disturbed")] for name in CORPUS_FILES}
    same = all(alone == disturbed for alone, disturbed in sides.values())
    translations = sides["corpus.de"][1].splitlines()
    faults, losses = dict(faulty.faults), count_losses(faulty.history())
    by_kind = ", ".join(f"{kind} {times}" for kind, times in sorted(faults.items()))
    yield Figure("faults, each in the middle of a shard", f"{faulty.faults.total()}: {by_kind}", "", faults)
    yield Figure("in the log", ", ".join(f"{name} {times}" for name, times in losses.items()), "", losses)
    yield Figure(
        "lines; different translations",
        f"{len(translations):,}; {len(set(translations)):,}",
        "",
        len(set(translations)),
    )
    yield Figure("output against one undisturbed machine", "same bytes" if same else "DIFFERENT", "same bytes", same)
    once = sides["corpus.en"][1] == text.read_bytes()
    yield Figure("the source side is the text, every line once", "yes" if once else "NO", "yes", once)


def measure_memory(options: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    model = folder / "int8" if (folder / "int8").exists() else make_model(folder)
    python = folder / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -m benchmarks.copying_worker\n")
    python.chmod(0o755)
    for lines in options.lines:
        text, out = write_text(folder / "long.en", lines), folder / "copied"
        peak_bytes, seconds = peak_memory(
            dragoman_command("synthesize", model, text, "--out", out, "--python", python, "--device", "cpu")
        )
        read = read_json(out / "synthesis.json")["corpus"]["read_lines"]
        assert read == lines, f"{read} of {lines} lines"
        shutil.rmtree(out)
        name = f"peak memory of coordinator and copying worker, {lines:,} lines ({seconds:.0f} s)"
        yield Figure(name, f"{peak_bytes / 1e6:,.0f} MB", "the same, under 2 GB", peak_bytes)


def peak_memory(command: list[str]) -> tuple[int, float]:
    """The largest resident size of a process and its children, and its duration."""
    started_at_s, peak = time.monotonic(), 0
    with psutil.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                family = [process, *process.children(recursive=True)]
                peak = max(peak, sum(each.memory_info().rss for each in family))
            except psutil.NoSuchProcess:
                pass
            time.sleep(0.2)
        if process.returncode:
            raise SystemExit(f"synthesize exited with status {process.returncode}.")
    return peak, time.monotonic() - started_at_s


def measure_speed(options: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    from benchmarks.generate_peer import GeneratePeer

    if options.model is None or options.text is None:
        raise SystemExit("The speed needs --model and --text.")
    lines = read_text_lines(options.text)
    sample = random.Random(1).sample(lines, min(options.peer_lines, len(lines)))
    run_dragoman("export", options.model, "--to", "huggingface", "--out", folder / "huggingface")
    ratio = DecodingSettings().max_length_ratio
    peer = GeneratePeer(folder / "huggingface", options.device, beam=SPEED_BEAM, max_length_ratio=ratio)
    for tokens, rate in peer.choose_batches(sample).items():
        yield Figure(f"transformers' generate, batches of {tokens:,} tokens: lines/s", f"{rate:,.1f}", "", rate)
    (folder / "short.txt").write_text("".join(f"{line}\n" for line in lines[:WARM_UP_LINES]))
    translate_all(options, folder / "short.txt", folder / "warm-up")  # Kernels are compiled once on a machine.
    ours, theirs = [], []
    for number in range(options.rounds):
        time_use = translate_all(options, options.text, folder / f"speed-{number}")
        ours.append(len(lines) / (sum(time_use.values()) - time_use["hosts starting or lost"]))
        theirs.append(peer.lines_per_s(sample))
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    name = f"beam {SPEED_BEAM}, text to text: lines/s"
    yield Figure(f"synthesize, {name}", f"{statistics.median(ours):,.1f}", "", ours)
    share = time_use["translating"] / (sum(time_use.values()) - time_use["hosts starting or lost"])
    yield Figure("share of this time in which the search ran", f"{share:.0%}", "", time_use)
    yield Figure(f"transformers' generate, {name}", f"{statistics.median(theirs):,.1f}", "", theirs)
    yield Figure("ratio, median of the rounds", f"{statistics.median(ratios):.1f} x", "6 x", ratios)
    same, of = compare_translations(
        SynthesisFolder(folder / "speed-0"), dict(zip(sample, peer.translate(sample), strict=True))
    )
    yield Figure("same translation", f"{same:,} of {of:,}", "", [same, of])


def translate_all(options: argparse.Namespace, text: Path, out: Path) -> dict[str, float]:
    """Run `dragoman synthesize` without a length penalty. Returns where its time went."""
    settings = (f"decoding.beam={SPEED_BEAM}", "decoding.length_penalty=0")
    run_dragoman("synthesize", options.model, text, "--out", out, "--device", options.device, *settings)
    time_use: dict[str, float] = json.loads(dragoman_output("report", out, "--json"))["time_use"]
    return time_use


def compare_translations(folder: SynthesisFolder, expected: dict[str, str]) -> tuple[int, int]:
    """Lines with the expected translation, and lines that have one."""
    numbers = sorted(folder.shards.finished())
    lines = [line for number in numbers for line in folder.shards.read(number)[1] if line[0] in expected]
    return sum(expected[text] == best.text for text, (best, *_) in lines), len(lines)


if __name__ == "__main__":
    main()

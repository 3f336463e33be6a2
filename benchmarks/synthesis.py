"""`dragoman synthesize`: bytes on hosts that are killed, memory with the length of the text, speed against `generate`.

- kills: three hosts in namespaces, of which one is killed, frozen or cut off every few seconds, and sometimes the
  coordinator; the corpus against that of one undisturbed machine. Needs root.
- memory: peak of the coordinator for texts of several lengths. A worker that copies lines takes the place of the
  translation, whose memory depends on the shard alone.
- speed: lines a second from text to text, against transformers' `generate` with the same weights and beam, in batches
  of similar length; needs a run or checkpoint and a text.

    python -m benchmarks.synthesis [--only kills memory] [--kills 20] [--lines 1000000 10000000]
    python -m benchmarks.synthesis --only speed --model RUN --text news.en [--device cuda]
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import toy_models
from benchmarks.command_line import dragoman_command, make_parser, run_dragoman
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus import demo
from dragoman.files import read_json
from dragoman.settings import DecodingSettings

PEER_BATCH = 256
PEER_LINES = 4096
"""Lines of the peer: it takes long, and its speed does not depend on the length of the text."""


def main() -> None:
    sections = {"kills": measure_kills, "memory": measure_memory, "speed": measure_speed}
    parser = make_parser(__doc__, sections, default=("kills", "memory"))
    parser.add_argument("--kills", type=int, default=20, help="machines and coordinators that are lost")
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--device", default="cpu")
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

    model, text = make_model(folder), write_text(folder / "text.en", 600 * options.kills)
    run_dragoman("synthesize", model, text, "--out", folder / "alone", "--shard-lines", "50")
    with Hosts(["a", "b", "c"]) as hosts:
        command = dragoman_command("synthesize", model, text, "--out", folder / "disturbed", "--shard-lines", "50")
        command += ["--hosts", "a,b,c", "--ssh-config", str(hosts.ssh_config)]
        losses = disturb(hosts, command, options.kills)
    names = ("corpus.en", "corpus.de")
    same = all((folder / "alone" / name).read_bytes() == (folder / "disturbed" / name).read_bytes() for name in names)
    read = read_json(folder / "disturbed" / "synthesis.json")["corpus"]["read_lines"]
    yield Figure("losses during the synthesis", str(losses), "", losses)
    yield Figure("output against one undisturbed machine", "same bytes" if same else "DIFFERENT", "same bytes", same)
    yield Figure("lines read, of those of the text", f"{read} of {600 * options.kills}", "all, once", read)


def disturb(hosts: Any, command: list[str], kills: int) -> int:
    """Run a command, and disturb its hosts or itself. Returns the number of losses."""
    chance, losses = random.Random(3), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            time.sleep(chance.uniform(1, 4))
            if losses >= kills or process.poll() is not None:
                continue
            host = hosts[chance.choice("abc")]
            losses += 1
            match chance.choice(["kill", "kill", "freeze", "disconnect", "coordinator"]):
                case "kill":
                    host.kill()
                    host.restart()
                case "freeze":
                    host.freeze()
                    time.sleep(2)
                    host.thaw()
                case "disconnect":
                    host.disconnect()
                    time.sleep(2)
                    host.reconnect()
                case "coordinator":
                    process.kill()
                    process.wait()
                    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    finally:
        process.kill()
    if process.returncode:
        raise SystemExit(f"synthesize exited with status {process.returncode}.")
    return losses


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
    if options.model is None or options.text is None:
        raise SystemExit("The speed needs --model and --text.")
    lines = sum(1 for _ in options.text.open("rb"))
    out = folder / "speed"
    run_dragoman("synthesize", options.model, options.text, "--out", out, "--device", options.device, "decoding.beam=4")
    report = subprocess.run(dragoman_command("report", out, "--json"), capture_output=True, text=True, check=True)
    seconds = json.loads(report.stdout)["time_use"]["translating"]
    ours = lines / seconds
    yield Figure("synthesize, beam 4: lines/s, text to text", f"{ours:,.1f}", "", ours)
    run_dragoman("export", options.model, "--to", "huggingface", "--out", folder / "huggingface")
    theirs = peer_lines_per_s(folder / "huggingface", options.text, options.device)
    yield Figure("transformers' generate, beam 4: lines/s", f"{theirs:,.1f}", "", theirs)
    yield Figure("ratio", f"{ours / theirs:.1f} x", "6 x", ours / theirs)


def peer_lines_per_s(model_folder: Path, text: Path, device: str) -> float:
    """Speed of `generate` on the first lines, in half precision on a GPU, in batches of similar length."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(
        model_folder, dtype=torch.bfloat16 if device == "cuda" else torch.float32
    ).to(device)
    with text.open() as file:
        lines = [line.rstrip("\n") for line, _ in zip(file, range(PEER_LINES), strict=False)]

    def translate(batch: list[str]) -> list[str]:
        inputs = tokenizer(batch, return_tensors="pt", padding=True, truncation=True, max_length=250).to(device)
        with torch.inference_mode():
            found = model.generate(**inputs, num_beams=4, max_length=None, max_new_tokens=256)
        return list(tokenizer.batch_decode(found, skip_special_tokens=True))

    lines.sort(key=len)
    translate(lines[:PEER_BATCH])
    started_at_s = time.monotonic()
    for start in range(0, len(lines), PEER_BATCH):
        translate(lines[start : start + PEER_BATCH])
    return len(lines) / (time.monotonic() - started_at_s)


if __name__ == "__main__":
    main()

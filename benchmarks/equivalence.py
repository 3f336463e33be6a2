"""Compare two checkouts of this project: the same commands must give the same numbers, bit for bit.

    python -m benchmarks.equivalence OLD NEW [--keep DIR] [--only TEXT] [--corpora DIR]

OLD and NEW are folders with `src/dragoman`. Each side runs the same commands as a user would, one after the other, in
subprocesses of this interpreter, on the CPU, with one thread. Compared are prepared data sets, the numbers of every
step and evaluation, all saved tensors, translations, scores and exports. Keys, files and tensors that have another name
but the same content count as identical; they are listed. Model cards may differ; this is listed too. Anything else that
differs makes the exit status 1.

Where NEW has renamed a setting or an option, add it to RENAMED. With --keep the outputs stay in DIR, and those of OLD
are reused as long as its source, the commands and the versions of Python and torch are the same. With --only a part is
compared, such as `data`, `2 workers` or `export`; what it depends on runs and is compared too.
"""

import argparse
import gzip
import itertools
import json
import lzma
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.outputs import (
    Comparison,
    compare,
    digest,
    read_cards,
    read_events,
    read_folder,
    read_json,
    read_lines,
    read_run,
)

RENAMED: dict[str, str] = {
    "decoding.coverage": "decoding.coverage_penalty",
    "decoding.no_repeat": "decoding.no_repeat_ngram",
    "exchange.outer_rate": "exchange.outer_learning_rate",
    "exchange.rank": "exchange.powersgd_rank",
    "exchange.wire": "exchange.wire_format",
    "schedule.policy=transformer_policy": "schedule.policy=inverse_sqrt",
    "schedule.rate": "schedule.learning_rate",
    "tokenizer.vocabulary": "tokenizer.vocabulary_size",
    "training.micro_tokens": "training.micro_batch_tokens",
}
"""Words of the commands below in OLD's spelling, and in NEW's: a setting (`training.micro_tokens`), an option
(`--n-best`), or a setting with its value (`optimizer.algorithm=muon`)."""

SHOWN = 8
"""Differences, renamed and added keys that are listed for each row at most."""

SIZE = (
    "model.d_model=64 model.heads=2 model.encoder_layers=2 model.decoder_layers=2 model.feed_forward=128 "
    "batch.tokens=600 training.precision=fp32 training.steps=24 schedule.warmup_steps=10 checkpoint.every=12 "
    "checkpoint.average=0 evaluation.every=24 evaluation.bleu=false"
)
ONE, TWO = f"--workers 1 {SIZE}", f"--workers 2 {SIZE}"
STOPPED_STEPS = 100


@dataclass(frozen=True)
class Case:
    """Commands to run in the folder of a side, and the output to compare. `> FILE` saves a command's output."""

    name: str
    commands: tuple[str, ...]
    output: str
    read: Callable[[Path], Any]
    stop_at_step: int = 0
    """Stop the first command with SIGTERM once it has done so many steps; 0 lets it finish."""
    needs: str = ""
    """Input without which this is left out."""
    may_differ: bool = False


def training(name: str, slug: str, recipe: str, settings: str, **options: Any) -> Case:
    command = f"train {recipe} --data data/demo --out runs/{slug} {settings}"
    return Case(f"training: {name}", (command,), f"runs/{slug}", read_run, **options)


def translation(name: str, slug: str, words: str, model: str = "runs/dropout") -> Case:
    command = f"translate {model} inputs/test.en {words} > text/{slug}"
    return Case(f"translation: {name}", (command,), f"text/{slug}", read_lines)


def exporting(name: str, slug: str, words: str, model: str = "runs/dropout") -> Case:
    return Case(f"export: {name}", (f"export {model} --out exports/{slug} {words}",), f"exports/{slug}", read_folder)


# Of the checkpoints only the last is kept, because the step at which the run stops is not always the same.
STOPPED = (
    f"train tiny --data data/demo --out runs/resumed {ONE} training.steps={STOPPED_STEPS} checkpoint.keep_last=1 "
    f"evaluation.every={STOPPED_STEPS}"
)
CASES = (
    Case("data: demo", ("prepare demo --recipe tiny --out data/demo --workers 1",), "data/demo", read_folder),
    Case("data: four formats, every cleaning rule", (
        "prepare inputs/own.tsv@1.5 inputs/own.jsonl.gz inputs/own.tmx inputs/own.po --languages en-de --workers 2 "
        "--out data/own tokenizer.algorithm=unigram tokenizer.vocabulary=400 corpus.valid_pairs=50 "
        "corpus.test_pairs=20 cleaning.max_tokens=64",
    ), "data/own", read_folder),
    Case("data: Multi30k, 4,000 pairs", (
        "prepare inputs/multi30k/train.en inputs/multi30k/train.de --recipe small --out data/multi30k --workers 2 "
        "--valid inputs/multi30k/valid.en,inputs/multi30k/valid.de tokenizer.vocabulary=2000",
    ), "data/multi30k", read_folder, needs="multi30k"),
    training("dropout, AdamW, averaged, BLEU", "dropout", "tiny",
        f"{ONE} batch.tokens=1000 training.steps=160 schedule.rate=0.01 schedule.warmup_steps=30 "
        "evaluation.every=80 evaluation.bleu=true evaluation.sentences=20 checkpoint.every=40 checkpoint.average=3 "
        "model.dropout=0.1 model.attention_dropout=0.1 model.activation_dropout=0.1"),
    training("recipe modern, Muon", "muon", "modern", f"{ONE} optimizer.algorithm=muon"),
    training("EMA, QK norm, cosine", "ema", "tiny",
        f"{ONE} optimizer.ema_decay=0.9 model.qk_norm=true schedule.policy=cosine"),
    training("micro-batches, Transformer policy", "micro", "tiny",
        f"{ONE} training.micro_tokens=150 schedule.policy=transformer_policy schedule.rate=2"),
    Case("training: stopped and resumed", (STOPPED, STOPPED), "runs/resumed", read_run, stop_at_step=5),
    training("2 workers, plain", "plain", "tiny", f"{TWO} exchange.method=plain"),
    training("2 workers, bf16", "bf16", "tiny", f"{TWO} exchange.method=bf16"),
    training("2 workers, PowerSGD", "powersgd", "tiny", f"{TWO} exchange.method=powersgd exchange.rank=4"),
    training("2 workers, local, bf16", "local", "tiny", f"{TWO} exchange.method=local exchange.every=4"),
    training("2 workers, local, int8, momentum", "local-int8", "tiny",
        f"{TWO} exchange.method=local exchange.every=4 exchange.wire=int8 exchange.outer_momentum=0.5 "
        "exchange.outer_rate=0.7"),
    translation("beam 1", "beam-1", "decoding.beam=1"),
    translation("beam 4", "beam-4", "decoding.beam=4"),
    translation("3 best of 4, with scores", "n-best", "decoding.beam=4 --n-best 3 --scores"),
    translation("coverage, no repetition", "coverage", "decoding.beam=3 decoding.coverage=0.2 decoding.no_repeat=3"),
    Case("score: a file", (
        "score text/beam-4 --src inputs/test.en --ref inputs/test.de --json > text/score.json",
    ), "text/score.json", read_json),
    Case("score: a model and a file, compared", (
        "score runs/dropout text/beam-1 --src inputs/test.en --ref inputs/test.de --json > text/scores.json",
    ), "text/scores.json", read_json),
    exporting("CTranslate2, int8", "int8", "--to ctranslate2 --quantization int8 --data data/demo"),
    exporting("CTranslate2, float32", "float32", "--to ctranslate2 --quantization float32"),
    exporting("CTranslate2, float32, recipe modern", "modern", "--to ctranslate2 --quantization float32", "runs/muon"),
    exporting("Hugging Face", "huggingface", "--to huggingface"),
    exporting("safetensors", "safetensors", "--to safetensors"),
    translation("the int8 export", "int8", "", model="exports/int8"),
    Case("export: model cards", (), "exports", read_cards, may_differ=True),
)  # fmt: skip


def cases_for(text: str) -> tuple[Case, ...]:
    """Cases with this text in their names, after those whose outputs they read."""
    chosen = [case for case in CASES if text.lower() in case.name.lower()]
    read = {word for case in chosen for command in case.commands for word in command.split()}
    for case in reversed(CASES):
        if case not in chosen and case.output in read:
            chosen.append(case)
            read.update(word for command in case.commands for word in command.split())
    return tuple(case for case in CASES if case in chosen)


class Side:
    """A checkout, and the folder in which its commands run."""

    def __init__(self, checkout: Path, folder: Path, renamed: Mapping[str, str]) -> None:
        self.folder = folder
        self.failures: dict[str, str] = {}
        self._renamed = renamed
        launchers = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SACREBLEU_SEED"}
        self._environment = {name: value for name, value in os.environ.items() if name not in launchers} | {
            "PYTHONPATH": str(checkout / "src"), "DRAGOMAN_CACHE": str(folder / "cache"),
            "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1", "PYTHONUTF8": "1",
        }  # fmt: skip
        where = [sys.executable, "-c", "import dragoman; print(dragoman.__file__)"]
        found = subprocess.run(where, cwd=folder, env=self._environment, capture_output=True, text=True, check=False)
        if found.returncode or not Path(found.stdout.strip()).is_relative_to(checkout / "src"):
            raise SystemExit(f"{checkout}: its src/dragoman is not what Python imports: {found.stdout}{found.stderr}")

    def run(self, case: Case) -> None:
        """Run the commands of a case. A failure is kept, to be reported with the comparison."""
        if case.needs and not (self.folder / "inputs" / case.needs).exists():
            return
        for number, command in enumerate(case.commands):
            try:
                self._run(command, case, stop_at_step=0 if number else case.stop_at_step)
            except RuntimeError as error:
                self.failures[case.name] = str(error)
                return

    def _run(self, command: str, case: Case, stop_at_step: int) -> None:
        command, _, target = command.partition(" > ")
        words = [sys.executable, "-m", "dragoman", *(self._spell(word) for word in command.split())]
        with self._output(target) as output, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
            process = subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=output, stderr=errors)
            if stop_at_step:
                _stop(process, self.folder / case.output, stop_at_step)
            if process.wait():
                errors.seek(0)
                raise RuntimeError(f"`dragoman {' '.join(words[3:])}` failed: {errors.read().strip()[-400:]}")
        if stop_at_step and _steps_done(self.folder / case.output) == STOPPED_STEPS:
            raise RuntimeError("the run ended before it could be stopped: raise STOPPED_STEPS")

    def _spell(self, word: str) -> str:
        if word in self._renamed:
            return self._renamed[word]
        key, equals, value = word.partition("=")
        return self._renamed.get(key, key) + equals + value

    @contextmanager
    def _output(self, target: str) -> Iterator[Any]:
        path = self.folder / target if target else Path(os.devnull)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            yield file

    def read(self, case: Case) -> Any:
        if case.name in self.failures:
            raise ValueError(self.failures[case.name])
        return case.read(self.folder / case.output)


def _stop(process: subprocess.Popen[bytes], run: Path, step: int) -> None:
    while process.poll() is None and _steps_done(run) < step:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)


def _steps_done(run: Path) -> int:
    return max((event["step"] for log in run.glob("events*.jsonl") for event in read_events(log)["steps"]), default=0)


@dataclass(frozen=True)
class Row:
    """One line of the table; without a comparison where the input is missing."""

    case: Case
    found: Comparison | None

    @property
    def differs(self) -> bool:
        return self.found is not None and bool(self.found.different) and not self.case.may_differ

    def __str__(self) -> str:
        if self.found is None:
            return f"| {self.case.name} | 0 | not compared: the corpus was not found |"
        result = "identical"
        if self.found.different:
            result = "different, which is allowed" if self.case.may_differ else "**different**"
        elif self.found.renamed or self.found.added:
            result = f"identical, {self.found.renamed.total()} keys renamed, {self.found.added.total()} added"
        return f"| {self.case.name} | {self.found.compared:,} | {result} |"

    def details(self) -> list[str]:
        if self.found is None:
            return []
        renamed = [f"{old} -> {new} ({times}x)" for (old, new), times in self.found.renamed.most_common()]
        added = [f"{name} ({times}x)" for name, times in self.found.added.most_common()]
        found = {"different": self.found.different, "renamed": renamed, "added": added}
        return [f"  {kind}: {line}" for kind, lines in found.items() for line in cut(lines)]


def cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"and {len(lines) - SHOWN:,} more"]


def run_all(side: Side, cases: Iterable[Case], label: str) -> None:
    for case in cases:
        started = time.perf_counter()
        side.run(case)
        state = "failed" if case.name in side.failures else f"{time.perf_counter() - started:.1f} s"
        print(f"{label}: {case.name}: {state}", flush=True)


def run_old(checkout: Path, folder: Path, corpora: Path | None) -> None:
    """Run all cases of OLD and write the inputs that NEW will be given. OLD must not fail: it is the reference."""
    side = Side(checkout, folder, renamed={})
    run_all(side, CASES[:1], "old")
    write_inputs(folder / "inputs", corpora, folder / "data" / "demo")
    run_all(side, CASES[1:], "old")
    if side.failures:
        raise SystemExit("OLD cannot be compared with: " + "; ".join(side.failures.values()))
    (folder / "stamp.json").write_text(json.dumps(stamp_of(checkout)))


def reuse_or_run_old(checkout: Path, keep: Path, corpora: Path | None) -> Path:
    """Folder with the outputs of OLD."""
    kept = keep / "old"
    is_same = (kept / "stamp.json").exists() and read_json(kept / "stamp.json") == stamp_of(checkout)
    if is_same and (corpora is None or (kept / "inputs" / "multi30k").exists()):
        print(f"old: outputs reused from {kept}", flush=True)
        return kept
    # Under another name until it is complete, because others may compare with the earlier outputs at the same time.
    made = Path(tempfile.mkdtemp(prefix=".old-", dir=keep))
    try:
        run_old(checkout, made, corpora)
        shutil.rmtree(kept, ignore_errors=True)
        return made.rename(kept)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def compare_cases(cases: Iterable[Case], old: Side, new: Side) -> list[Row]:
    rows = []
    for case in cases:
        if case.needs and not (old.folder / "inputs" / case.needs).exists():
            rows.append(Row(case, None))
            continue
        try:
            found = compare(old.read(case), new.read(case))
            if not found.compared:
                raise ValueError(f"there is nothing to compare in {case.output}")
        except (ValueError, KeyError, OSError) as error:
            found = Comparison(different=[" ".join(str(error).split())])
        rows.append(Row(case, found))
    return rows


def write_inputs(folder: Path, corpora: Path | None, demo: Path) -> None:
    """Write text in four formats that meets every cleaning rule, sentences to translate, and a part of Multi30k."""
    folder.mkdir()
    for name in ("test.en", "test.de"):
        (folder / name).write_text("\n".join(read_lines(demo / name)[:50]) + "\n", encoding="utf-8")
    pairs = iter(own_pairs(1500))
    counted = " ".join(map(str, range(75))).encode()
    dirty = [
        (b"", b"leer"), (b"the same words", b"the same words"), (b"a broken \xff byte", b"ein kaputtes \xfe Byte"),
        ("a cafe\u0301 here".encode(), "ein Cafe\u0301 hier".encode()), (b"zero\xe2\x80\x8bwidth", b"null breit"),
        ("so sch\u00c3\u00b6n".encode(), b"so nice"), ("весь текст".encode(), b"ganz anderes"),
        (b"word " * 90, b"Wort " * 90), (b"much longer " * 12, b"kurz"), (counted, counted[::-1]),
        (b"twice the same", b"zweimal gleich"), (b"twice the same", b"zweimal gleich"),
    ]  # fmt: skip
    with (folder / "own.tsv").open("wb") as tsv:
        for source, target in itertools.islice(pairs, 700):
            tsv.write(f"{source}\t{target}\n".encode())
        tsv.writelines(source + b"\t" + target + b"\n" for source, target in dirty)
    with gzip.open(folder / "own.jsonl.gz", "wt", encoding="utf-8") as jsonl:
        jsonl.writelines(json.dumps({"en": en, "de": de}) + "\n" for en, de in itertools.islice(pairs, 400))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv></tu>\n'
        for source, target in itertools.islice(pairs, 200)
    )
    (folder / "own.tmx").write_text(f'<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n', encoding="utf-8")
    entries = "".join(f'\nmsgid "{source}"\nmsgstr "{target}"\n' for source, target in pairs)
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    (folder / "own.po").write_text(head + entries, encoding="utf-8")
    if corpora is not None:
        (folder / "multi30k").mkdir()
        for name, count in (("train.en", 4000), ("train.de", 4000), ("valid.en", 300), ("valid.de", 300)):
            with lzma.open(corpora / "multi30k-en-de" / f"{name}.xz", "rb") as lines:
                (folder / "multi30k" / name).write_bytes(b"".join(itertools.islice(lines, count)))


def own_pairs(count: int) -> Iterator[tuple[str, str]]:
    words = {
        "river": "Fluss", "house": "Haus", "bird": "Vogel", "sea": "Meer", "green": "grün", "old": "alt",
        "sings": "singt", "falls": "fällt", "quickly": "schnell", "under": "unter", "again": "wieder", "never": "nie",
    }  # fmt: skip
    chance = random.Random(5)
    for number in range(count):
        drawn = chance.choices(list(words), k=chance.randint(3, 14))
        yield f"{' '.join(drawn)} {number}.", f"{' '.join(words[word] for word in drawn)} {number}."


def stamp_of(checkout: Path) -> dict[str, Any]:
    """Everything that decides the outputs of a checkout."""
    source = checkout / "src" / "dragoman"
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    listing = "".join(f"{path.relative_to(source)} {digest(path.read_bytes())}\n" for path in files)
    return {
        "source": digest(listing.encode()),
        "commands": [[case.name, list(case.commands), case.stop_at_step] for case in CASES],
        "versions": [platform.python_version(), metadata.version("torch")],
    }


def find_corpora(checkouts: Iterable[Path]) -> Path | None:
    """Folder of the real corpora, beside a checkout."""
    beside = (checkout.parent / "shared" / "data" for checkout in checkouts)
    return next((path for path in beside if (path / "multi30k-en-de").is_dir()), None)


def version_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "not under git"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="checkout to compare with")
    parser.add_argument("new", type=Path, help="checkout that must give the same numbers")
    parser.add_argument("--keep", type=Path, help="folder for the outputs; those of OLD are reused")
    parser.add_argument(
        "--only", default="", help="compare only what has this text in its name, such as data or export"
    )
    parser.add_argument(
        "--corpora", type=Path, help="folder with multi30k-en-de (default: ../shared/data of a checkout)"
    )
    options = parser.parse_args()
    old, new = options.old.resolve(), options.new.resolve()
    corpora = options.corpora or find_corpora((Path(__file__).resolve().parents[1], old, new))
    with tempfile.TemporaryDirectory() as temporary:
        keep = (options.keep or Path(temporary)).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        reference = reuse_or_run_old(old, keep, corpora)
        folder = keep / f"new-{new.name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copytree(reference / "inputs", folder / "inputs")
        side = Side(new, folder, RENAMED)
        cases = cases_for(options.only)
        run_all(side, cases, "new")
        rows = compare_cases(cases, Side(old, reference, {}), side)
        elapsed_s = time.perf_counter() - started
    report(rows, {"old": version_of(old), "new": version_of(new), "elapsed_s": round(elapsed_s, 1)})
    sys.exit(any(row.differs for row in rows))


def report(rows: list[Row], about: Mapping[str, Any]) -> None:
    print("\n| what | values compared | result |\n|---|---|---|", *rows, sep="\n")
    for row in rows:
        if details := row.details():
            print(f"\n{row.case.name}:", *details, sep="\n")
    found = {row.case.name: row.found for row in rows if row.found is not None}
    result = {
        "benchmark": "equivalence", **about, "same": not any(row.differs for row in rows),
        "compared": sum(comparison.compared for comparison in found.values()),
        "different": [row.case.name for row in rows if row.differs],
        "renamed": sum(comparison.renamed.total() for comparison in found.values()),
        "not_compared": [row.case.name for row in rows if row.found is None],
    }  # fmt: skip
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()

"""Training and translating on one GPU: speed, memory, and what is learned in a minute or four, beside Hugging Face's.

All runs of ours go through what `dragoman train` runs, from prepared shards, with the recipe's dropout and label
smoothing, and their speed is read from their events. Preparing is not counted; compiling is, where seconds of training
are. Compiled code is kept, as for users, so that a second run of a kind starts sooner.

    python -m benchmarks.gpu [--corpora ../shared/data] [--only speed waiting ...] [--seconds 240] [--seeds 1 2 3]

Without `--only` it takes about eight minutes. MarianMT's own 240 s of training and the ablations have to be asked for.
"""

import argparse
import contextlib
import io
import json
import lzma
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from benchmarks import marian, peers
from dragoman.batching.data_loader import DataLoader, Position, WorkerBatch
from dragoman.batching.packing import pack_sentences
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import PAD_ID
from dragoman.decoding.beam_search import search
from dragoman.decoding.line_translator import make_batches
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.translation_judge import make_judge
from dragoman.decoding.translator import GPU_BATCH_TOKENS, Translator, load
from dragoman.distributed.cluster import join_cluster
from dragoman.events import EvaluationDone, StepDone
from dragoman.launch import local_launcher
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.prefetch import Prefetcher
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import DecodingSettings, Settings
from dragoman.training.train_step import TrainStep
from dragoman.training.worker import TrainingJob

CORPORA = Path(__file__).resolve().parents[2] / "shared" / "data"
NEVER = 10**6
QUIET = [f"evaluation.every={NEVER}", "evaluation.bleu=false", f"checkpoint.every={NEVER}"]
MULTI30K = [
    "batch.tokens=6000", "model.dropout=0.4", "model.attention_dropout=0.1", "model.activation_dropout=0.1",
    "optimizer.algorithm=muon", "optimizer.weight_decay=0.1", "optimizer.ema_decay=0.995",
    "schedule.learning_rate=0.003", "schedule.warmup_steps=300", "schedule.decay_fraction=0.6",
]  # fmt: skip
MULTI30K_STEPS = 4500
START_S = 8.0
"""What compiling takes where it was done before on the same machine, generously."""
MULTI30K_DECODING = {"beam": 5, "alpha": 1.0}
EUROPARL = ["model.dropout=0.2"]
"""Nine epochs of 600,000 pairs: with the recipe's 0.1, meant for millions, the model learns them by heart."""
CLASSIC = ["optimizer.algorithm=muon", "schedule.policy=warmup_stable_decay", "schedule.learning_rate=0.002",
           "schedule.warmup_steps=200", "schedule.decay_fraction=0.4", "batch.tokens=25600"]  # fmt: skip
ABLATIONS = {
    "modern": [],
    "AdamW instead of Muon": ["optimizer.algorithm=adamw", "schedule.learning_rate=0.001"],
    "6 + 6 layers of the original": ["model.encoder_layers=6", "model.decoder_layers=6", "model.feed_forward=2048",
                                     "model.norm=layernorm", "model.activation=relu", "model.positions=sinusoidal",
                                     "model.bias=true"],
    "half the batch": ["batch.tokens=12800"],
    "no dropout": ["model.dropout=0.0"],
}  # fmt: skip


@dataclass
class Bench:
    """Where everything lies, and what was found."""

    corpora: Path
    folder: Path
    seconds: float
    seeds: Sequence[int] = (1,)
    figures: dict[str, Any] = field(default_factory=dict)

    def tell(self, name: str, value: Any, text: str) -> None:
        self.figures[name] = value
        print(f"{name:<44}{text}", flush=True)

    def corpus(self, folder: str, name: str) -> tuple[list[str], list[str]]:
        english, german = (self._lines(folder, name, side) for side in ("en", "de"))
        return english, german

    def _lines(self, folder: str, name: str, side: str) -> list[str]:
        path = self.corpora / folder / f"{name}.{side}.xz"
        return lzma.open(path, "rt", encoding="utf-8").read().splitlines()

    def europarl(self) -> DataSet:
        names = [("europarl-en-de", "train"), ("europarl-en-de", "valid"), ("newstest-en-de", "newstest2014")]
        files = [[str(self.corpora / folder / f"{name}.{side}.xz") for side in ("en", "de")] for folder, name in names]
        return self._prepare("europarl", files, "transformer-base")

    def multi30k(self) -> DataSet:
        """Lowercased, as what was published."""
        files = []
        for name in ("train", "valid", "test2016"):
            paths = [self.folder / f"{name}.{side}" for side in ("en", "de")]
            for path, lines in zip(paths, self.corpus("multi30k-en-de", name), strict=True):
                path.write_text("".join(f"{line.lower()}\n" for line in lines), encoding="utf-8")
            files.append([str(path) for path in paths])
        return self._prepare("multi30k", files, "small", "tokenizer.vocabulary_size=8000")

    def _prepare(self, name: str, files: Sequence[Sequence[str]], recipe: str, *overrides: str) -> DataSet:
        out = self.folder / name
        if not out.exists():
            train, valid, test = files
            sets = ["--valid", ",".join(valid), "--test", ",".join(test)]
            command = ["prepare", *train, *sets, "-l", "en-de", "--recipe", recipe, "--out", str(out), *overrides]
            done = subprocess.run(
                [sys.executable, "-m", "dragoman", *command], capture_output=True, text=True, check=False
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(f"dragoman prepare left with {done.returncode}: {done.stdout}{done.stderr}")
        return DataSet(out)


@dataclass(frozen=True)
class Run:
    """A finished run of ours."""

    folder: Path
    settings: Settings
    wall_s: float
    """From the call to its return: compiling, training, a last evaluation of the loss, a checkpoint."""
    peak_bytes: int

    @property
    def steps(self) -> list[StepDone]:
        return [event for event in RunFolder(self.folder).events() if isinstance(event, StepDone)]

    @property
    def valid_nll(self) -> float:
        return next(event.nll for event in RunFolder(self.folder).events() if isinstance(event, EvaluationDone))

    def tokens_per_s(self, after: int) -> float:
        """Over all steps after the first few."""
        steps = self.steps[after:]
        tokens = sum(step.source_tokens + step.target_tokens for step in steps[1:])
        return tokens / (steps[-1].at_s - steps[0].at_s)

    def translate(self, lines: Sequence[str], **decoding: Any) -> list[str]:
        return list(load(self.folder, **decoding).translate(lines))


def train(bench: Bench, name: str, data: DataSet, recipe: str, *overrides: str) -> Run:
    settings = resolve(recipe, [*QUIET, *overrides]).settings
    folder = bench.folder / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)  # A finished run would have nothing left to do.
    torch.compiler.reset()  # As a new process would begin.
    torch.cuda.reset_peak_memory_stats()
    started_at = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        local_launcher.train(TrainingJob(settings, data.path, folder), workers=1, make_judge=make_judge)
    return Run(folder, settings, time.perf_counter() - started_at, torch.cuda.max_memory_allocated())


def bleu(translations: Sequence[str], references: Sequence[str], **options: Any) -> float:
    return float(sacrebleu.corpus_bleu(list(translations), [list(references)], **options).score)


def measure_peak_flops(bench: Bench) -> None:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times_s = [seconds(lambda: a @ b) for _ in range(20)]
    rate = 2 * 8192**3 / statistics.median(times_s) / 1e12
    bench.tell("bf16 matrix products, TFLOP/s", rate, f"{rate:.0f}")


def measure_speed(bench: Bench) -> None:
    """transformer-base as it is, at two sizes of batch; the smaller beside MarianMT."""
    data = bench.europarl()
    for tokens in (25600, 12800):
        run = train(bench, f"speed-{tokens}", data, "transformer-base", f"batch.tokens={tokens}", "training.steps=240")
        rate = run.tokens_per_s(after=60)
        bench.tell(f"transformer-base, {tokens} tokens a side", rate, f"{rate / 1e6:.3f} M tokens/s")
        bench.tell(f"peak memory at {tokens}", run.peak_bytes, f"{run.peak_bytes / 2**30:.1f} GiB")


def measure_marian(bench: Bench) -> None:
    data, device = bench.europarl(), torch.device("cuda")
    model = marian.Marian(data, device)
    rate, peak = marian.speed(model, model.batches(12800, 100))
    bench.tell("MarianMT eager, 12800 tokens a side", rate, f"{rate / 1e6:.3f} M tokens/s, {peak / 2**30:.1f} GiB")
    bench.figures["peak memory of MarianMT at 12800"] = peak
    _compare(bench, "eager", rate)


def measure_compiled_marian(bench: Bench) -> None:
    data, device = bench.europarl(), torch.device("cuda")
    model = marian.Marian(data, device, compiled=True)
    rate, _ = marian.speed(model, model.equal_batches(12800, 32, 40))
    bench.tell("MarianMT compiled, one shape of 12800", rate, f"{rate / 1e6:.3f} M tokens/s")
    _compare(bench, "compiled", rate)


def _compare(bench: Bench, kind: str, rate: float) -> None:
    ours = bench.figures.get("transformer-base, 12800 tokens a side")
    if ours is not None:
        bench.tell(f"ours against MarianMT {kind}", ours / rate, f"{ours / rate:.2f} x")


def measure_multi30k(bench: Bench) -> None:
    data = bench.multi30k()
    sources, references = ([line.lower() for line in side] for side in bench.corpus("multi30k-en-de", "test2016"))
    scores, walls = [], []
    for seed in bench.seeds:
        steps = f"training.steps={MULTI30K_STEPS}"
        run = train(bench, f"multi30k-{seed}", data, "small", *MULTI30K, steps, f"training.seed={seed}")
        translations = run.translate(sources, **MULTI30K_DECODING)
        scores.append(bleu(translations, references, lowercase=True))
        walls.append(run.wall_s)
        print(f"  seed {seed}: BLEU {scores[-1]:.2f}, {run.wall_s:.1f} s, nll {run.valid_nll:.3f}", flush=True)
    mean = statistics.mean(scores)
    bench.tell("Multi30k test2016, lowercased BLEU", mean, f"{mean:.2f} ({scores}), {max(walls):.0f} s at most")
    bench.figures["Multi30k seconds of training"] = walls


def measure_europarl(bench: Bench) -> None:
    """As many steps as fit into the time, by the speed of a short run of the same kind."""
    data = bench.europarl()
    probe = train(bench, "probe", data, "modern", *EUROPARL, "training.steps=120").steps
    step_s = (probe[-1].at_s - probe[50].at_s) / (len(probe) - 51)
    steps = int((bench.seconds - START_S) / step_s)
    run = train(bench, "europarl", data, "modern", *EUROPARL, f"training.steps={steps}")
    done = run.steps
    trained_s = done[-1].at_s - RunFolder(run.folder).config.stat().st_mtime
    rate = run.tokens_per_s(after=100)
    text = f"{len(done)} steps, {trained_s:.0f} s with compiling, {rate / 1e6:.3f} M tokens/s, nll {run.valid_nll:.3f}"
    bench.tell("modern on europarl", {"steps": steps, "seconds": trained_s, "tokens_per_s": rate}, text)
    _tell_quality(bench, "modern", run.translate)


def measure_marian_quality(bench: Bench) -> None:
    data, device = bench.europarl(), torch.device("cuda")
    model = marian.Marian(data, device)
    everything = model.batches(12800, NEVER)
    rate = marian.learn(model, everything, bench.seconds)
    bench.tell("MarianMT on europarl", rate, f"{rate / 1e6:.3f} M tokens/s for {bench.seconds:.0f} s")
    model.model.eval()
    special_tokens = SpecialTokens.from_tokenizer(data.tokenizer, data.tokenizer.padded_vocab_size)

    def translate(lines: Sequence[str]) -> list[str]:
        sources = [(*data.tokenizer.encode(line), data.tokenizer.eos_id) for line in lines]
        found: dict[tuple[int, ...], list[int]] = {}
        with torch.autocast("cuda", torch.bfloat16):
            for batch in make_batches(set(sources), 16384):
                out = peers.generate(model.model, batch, beam=4, max_new_tokens=200, forbidden=special_tokens.forbidden)
                found.update(zip(batch, out, strict=True))
        return [data.tokenizer.decode(found[source]) for source in sources]

    _tell_quality(bench, "MarianMT", translate)


def _tell_quality(bench: Bench, name: str, translate: Callable[[Sequence[str]], list[str]]) -> None:
    for folder, test, most in (("europarl-en-de", "valid", 1500), ("newstest-en-de", "newstest2014", 3003)):
        sources, references = (side[:most] for side in bench.corpus(folder, test))
        score = bleu(translate(sources), references)
        bench.tell(f"{name}: BLEU on {test}", score, f"{score:.2f}")


def measure_decoding(bench: Bench) -> None:
    """Beam 4 over newstest2014, same weights, no length penalty, so that both look for the same."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # It would make theirs several times slower.
    data = bench.europarl()
    run = train(bench, "classic", data, "transformer-base", *CLASSIC, "training.steps=1000")
    translator = load(run.folder)
    assert isinstance(translator, Translator)
    model = translator.model
    tokenizer = data.tokenizer
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, model.architecture.vocabulary)
    lines, references = bench.corpus("newstest-en-de", "newstest2014")
    sources = [(*tokenizer.encode(line), tokenizer.eos_id) for line in lines]
    peer = peers.m2m100(model, tokenizer.decoder_start_id, tokenizer.eos_id, PAD_ID)
    options = DecodingSettings(beam=4, length_penalty=0.0, max_length_ratio=2.0)

    def ours() -> dict[tuple[int, ...], list[int]]:
        found: dict[tuple[int, ...], list[int]] = {}
        for batch in make_batches(set(sources), GPU_BATCH_TOKENS):
            results = search(model, pack_sentences(batch), options, special_tokens)
            found.update((source, best.tokens) for source, [best] in zip(batch, results, strict=True))
        return found

    def theirs() -> dict[tuple[int, ...], list[int]]:
        found: dict[tuple[int, ...], list[int]] = {}
        for batch in make_batches(set(sources), 16384):
            out = peers.generate(peer, batch, beam=4, max_new_tokens=200, forbidden=special_tokens.forbidden)
            found.update(zip(batch, out, strict=True))
        return found

    with torch.autocast("cuda", torch.bfloat16):
        found = ours()
        our_s = statistics.median(seconds(ours) for _ in range(3))
        peers.generate(peer, sources[:200], beam=4, max_new_tokens=20, forbidden=special_tokens.forbidden)
        started_at = time.perf_counter()
        expected = theirs()
        their_s = time.perf_counter() - started_at
    same = sum(found[source] == expected[source] for source in sources)
    scores = [bleu([tokenizer.decode(side[source]) for source in sources], references) for side in (found, expected)]
    text = f"{len(sources) / our_s:.0f} sentences/s, theirs {len(sources) / their_s:.0f}"
    bench.tell("beam 4 on newstest2014", {"ours_s": our_s, "theirs_s": their_s}, text)
    bench.tell("ours against generate", their_s / our_s, f"{their_s / our_s:.1f} x")
    bench.tell("same translation", same, f"{same} of {len(sources)}; BLEU {scores[0]:.2f} and {scores[1]:.2f}")


def bare_steps(bench: Bench) -> tuple[TrainStep, Prefetcher[WorkerBatch]]:
    """What makes gradients of transformer-base at 25,600 tokens a side, and its batches, without the loop around."""
    cluster, data = join_cluster(), bench.europarl()
    settings = resolve("transformer-base", ["batch.tokens=25600"]).settings
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    model, tokens = Transformer(architecture).to(cluster.device).train(), settings.batch.tokens
    feed = DataLoader(data.pairs("train"), data.tokenizer, tokens, settings.batch.seed, tokens, fixed_sizes=True)
    precision = Precision.choose(settings, cluster.device)
    train_step = TrainStep(model, feed, precision, settings.training, cluster.device, print)
    return train_step, Prefetcher(feed.batches(Position(), [1.0], 0), 8)


def measure_waiting(bench: Bench) -> None:
    """What fresh batches cost against batches that are there already: the same steps, the same sizes."""
    gradients, fresh = bare_steps(bench)
    shares = [next(fresh) for _ in range(60)]

    def work(many: Iterator[WorkerBatch]) -> float:
        return seconds(lambda: [gradients(next(many), 1, 0) for _ in range(60)])

    work(iter(shares))
    ready_s = min(work(iter(shares)) for _ in range(2))
    fresh_s = min(work(fresh) for _ in range(2))
    fresh.close()
    idle = max(0.0, 1 - ready_s / fresh_s)
    bench.tell("GPU idle waiting for data", idle, f"{idle:.1%}")


def measure_step(bench: Bench) -> None:
    """Where the time of a forward and backward pass goes, kernel by kernel."""
    gradients, fresh = bare_steps(bench)
    shares = [next(fresh) for _ in range(20)]
    fresh.close()
    for share in shares:
        gradients(share, 1, 0)
    pass_s = seconds(lambda: [gradients(share, 1, 0) for share in shares]) / len(shares)
    bench.tell("one pass at 25600, without the update", pass_s, f"{1e3 * pass_s:.2f} ms")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for share in shares[:3]:
            gradients(share, 1, 0)
        torch.cuda.synchronize()
    kernels = sorted(profile.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    for kernel in kernels[:20]:
        print(f"  {kernel.self_device_time_total / 3e3:7.3f} ms{kernel.count // 3:6}  {kernel.key[:90]}")


def measure_ablations(bench: Bench) -> None:
    """The same number of tokens for all, with their own speeds beside."""
    data = bench.europarl()
    rows: dict[str, dict[str, float]] = {}
    for name, overrides in ABLATIONS.items():
        steps = 1000 if "batch.tokens=12800" in overrides else 500
        short = [f"training.steps={steps}", "schedule.warmup_steps=200", *overrides]
        run = train(bench, f"ablation-{len(rows)}", data, "modern", "batch.tokens=25600", *short)
        rows[name] = {"nll": run.valid_nll, "tokens_per_s": run.tokens_per_s(after=60), "wall_s": run.wall_s}
        print(f"  {name:<32}{run.valid_nll:8.4f} nll{rows[name]['tokens_per_s'] / 1e6:8.3f} M tokens/s", flush=True)
    bench.figures["ablations"] = rows


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    started_at = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started_at


SECTIONS = {
    "ceiling": measure_peak_flops,
    "speed": measure_speed,
    "waiting": measure_waiting,
    "step": measure_step,
    "marian": measure_marian,
    "decoding": measure_decoding,
    "multi30k": measure_multi30k,
    "europarl": measure_europarl,
    "compiled-marian": measure_compiled_marian,
    "marian-quality": measure_marian_quality,
    "ablations": measure_ablations,
}
USUAL = ["ceiling", "speed", "waiting", "marian", "decoding", "multi30k", "europarl"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=USUAL)
    parser.add_argument("--seconds", type=float, default=240.0, help="of training on europarl")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of training on Multi30k")
    parser.add_argument("--folder", type=Path, help="for data and runs; a temporary one where none is given")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU: run this on a machine that has one.")
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.corpora, options.folder or Path(temporary), options.seconds, options.seeds)
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        for name in options.only:
            started_at = time.perf_counter()
            try:
                SECTIONS[name](bench)
            except Exception:  # The other sections are still worth having.
                print(f"{name} was not measured:\n{traceback.format_exc()}")
            torch.cuda.empty_cache()
            print(f"  [{name}: {time.perf_counter() - started_at:.0f} s]", flush=True)
    print(json.dumps({"benchmark": "gpu", "device": torch.cuda.get_device_name(), **bench.figures}))


if __name__ == "__main__":
    main()

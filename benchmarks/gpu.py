"""Training and translation on one GPU: speed, memory and quality, compared with Hugging Face.

Our runs use the code of `dragoman train`, from prepared shards, with the recipe's dropout and label smoothing. Their
speed is read from their events. Times of training include compilation but not preparation. Compiled code is cached, as
for users, so that a second run of a kind starts sooner.

    python -m benchmarks.gpu [--corpora ../shared/data] [--only speed data-wait ...] [--seconds 240] [--seeds 1 2 3]

Without `--only` it takes about eight minutes. The default leaves out the step profile, the choice of settings for
Multi30k, MarianMT compiled, MarianMT's 240 s of training, and the ablations.
"""

import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from benchmarks import huggingface_marianmt
from benchmarks.command_line import NEVER, make_parser
from benchmarks.corpora import CORPORA, EUROPARL, MULTI30K, NEWSTEST
from benchmarks.gpu_runs import GpuBench, GpuRun
from benchmarks.huggingface_m2m100 import generate, make_m2m100
from benchmarks.huggingface_marianmt import MarianTrainer
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import measure_s, median_s
from dragoman.batching.data_loader import DataLoader, Position, WorkerBatch
from dragoman.batching.packed_batch import pack_sentences
from dragoman.corpus.tokenizer import PAD_ID
from dragoman.decoding.beam_search import search
from dragoman.decoding.line_translator import make_batches
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.translator import GPU_BATCH_TOKENS, Translator
from dragoman.decoding.translator_loading import load
from dragoman.distributed.cluster import join_cluster
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.prefetch import Prefetcher
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import DecodingSettings
from dragoman.training.train_step import TrainStep

MULTI30K_SETTINGS = [
    "batch.tokens=6000", "model.dropout=0.4", "model.attention_dropout=0.1", "model.activation_dropout=0.1",
    "optimizer.algorithm=muon", "optimizer.weight_decay=0.1", "optimizer.ema_decay=0.995",
    "schedule.learning_rate=0.003", "schedule.warmup_steps=300", "schedule.decay_fraction=0.6",
    "training.steps=4500",
]  # fmt: skip
MULTI30K_DECODING = {"beam": 5, "length_penalty": 1.0}
MULTI30K_DROPOUTS = ((0.3, 0.1), (0.4, 0.1), (0.4, 0.2), (0.5, 0.1))
"""Candidates: dropout, and dropout of attention and activations."""
MULTI30K_LENGTH_PENALTIES = (0.6, 1.0, 1.4)
LENGTH_PENALTIES = (0.0, 0.6)
"""For comparisons of BLEU. Ours divides scores by ((5 + length) / 6)^penalty, `generate` by length^penalty: with 0 both
search for the same, and 0.6 is the default of ours."""
EUROPARL_SETTINGS = ["model.dropout=0.2"]
"""Nine epochs of 600,000 pairs: with the recipe's dropout of 0.1, which suits millions of pairs, the model overfits."""
COMPILE_S = 8.0
"""Upper limit of the time to compile, if the same code was compiled before on the same machine."""
DECODING_SETTINGS = [
    "optimizer.algorithm=muon", "schedule.policy=warmup_stable_decay", "schedule.learning_rate=0.002",
    "schedule.warmup_steps=200", "schedule.decay_fraction=0.4", "batch.tokens=25600", "training.steps=1000",
]  # fmt: skip
MARIAN_TOKENS = 12800
"""Tokens per side of a batch, for comparisons with MarianMT."""
GENERATE_BATCH_TOKENS = 16384
"""Source tokens of a batch for Hugging Face's `generate`."""
ABLATIONS = {
    "modern": [],
    "AdamW instead of Muon": ["optimizer.algorithm=adamw", "schedule.learning_rate=0.001"],
    "original architecture, 6 + 6 layers": [
        "model.encoder_layers=6", "model.decoder_layers=6", "model.feed_forward=2048", "model.norm=layernorm",
        "model.activation=relu", "model.positions=sinusoidal", "model.bias=true",
    ],
    "half the batch": ["batch.tokens=12800"],
    "no dropout": ["model.dropout=0.0"],
}  # fmt: skip

SourceTokens = tuple[int, ...]


def measure_peak_flops(_bench: GpuBench) -> Iterator[Figure]:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    tflops = 2 * 8192**3 / median_s(lambda: a @ b, 20, "cuda") / 1e12
    yield Figure("bf16 matrix product, 8,192 cubed", f"{tflops:.0f} TFLOP/s", "", tflops)


def measure_speed(bench: GpuBench) -> Iterator[Figure]:
    """transformer-base with two batch sizes; the smaller one is compared with MarianMT."""
    data = bench.prepare_europarl()
    for tokens in (25600, MARIAN_TOKENS):
        settings = (f"batch.tokens={tokens}", "training.steps=240")
        run = bench.train(f"speed-{tokens}", data, "transformer-base", *settings)
        bench.tokens_per_s[tokens] = run.tokens_per_s(after=60)
        yield speed_figure(f"transformer-base, {tokens:,} tokens per side", bench.tokens_per_s[tokens])
        yield memory_figure(f"transformer-base, {tokens:,} tokens per side", run.peak_bytes)


def measure_marian(bench: GpuBench) -> Iterator[Figure]:
    trainer = MarianTrainer(bench.prepare_europarl(), torch.device("cuda"))
    rate, peak_bytes = huggingface_marianmt.measure_speed(trainer, trainer.batches(MARIAN_TOKENS, 100))
    yield speed_figure(f"MarianMT eager, {MARIAN_TOKENS:,} tokens per side", rate)
    yield memory_figure(f"MarianMT eager, {MARIAN_TOKENS:,} tokens per side", peak_bytes)
    yield from speedup_figure(bench, "eager", rate)


def measure_compiled_marian(bench: GpuBench) -> Iterator[Figure]:
    trainer = MarianTrainer(bench.prepare_europarl(), torch.device("cuda"), compiled=True)
    rate, _ = huggingface_marianmt.measure_speed(trainer, trainer.equal_batches(MARIAN_TOKENS, 32, 40))
    yield speed_figure(f"MarianMT compiled, {MARIAN_TOKENS:,} tokens per side, one shape", rate)
    yield from speedup_figure(bench, "compiled", rate)


def speed_figure(name: str, tokens_per_s: float) -> Figure:
    return Figure(f"{name}: source and target tokens/s", f"{tokens_per_s / 1e6:.3f} M", "", tokens_per_s)


def memory_figure(name: str, peak_bytes: int) -> Figure:
    return Figure(f"{name}: peak memory", f"{peak_bytes / 2**30:.1f} GiB", "", peak_bytes)


def speedup_figure(bench: GpuBench, kind: str, tokens_per_s: float) -> Iterator[Figure]:
    """The ratio, if our speed was measured before."""
    if MARIAN_TOKENS in bench.tokens_per_s:
        ratio = bench.tokens_per_s[MARIAN_TOKENS] / tokens_per_s
        yield Figure(f"transformer-base against MarianMT {kind}", f"{ratio:.2f} x", "", ratio)


def measure_multi30k(bench: GpuBench) -> Iterator[Figure]:
    data = bench.prepare_multi30k()
    sources, references = ([line.lower() for line in side] for side in bench.read(MULTI30K, "test2016"))
    scores = []
    for seed in bench.seeds:
        run = bench.train(f"multi30k-{seed}", data, "small", *MULTI30K_SETTINGS, f"training.seed={seed}")
        scores.append(bleu(run.translate(sources, **MULTI30K_DECODING), references, lowercase=True))
        name = f"Multi30k test2016, lowercased BLEU, seed {seed}"
        text = f"{scores[-1]:.2f} after {run.wall_s:.1f} s, validation loss {run.valid_nll:.3f}"
        yield Figure(name, text, "", {"bleu": scores[-1], "wall_s": run.wall_s})
    mean = statistics.mean(scores)
    yield Figure("Multi30k test2016, lowercased BLEU, mean", f"{mean:.2f}", "41", mean)


def choose_multi30k(bench: GpuBench) -> Iterator[Figure]:
    """Choose dropout and length penalty by BLEU on the validation set; then score the test set once."""
    data = bench.prepare_multi30k()
    (valid, valid_references), (test, test_references) = (
        [[line.lower() for line in side] for side in bench.read(MULTI30K, split)] for split in ("valid", "test2016")
    )
    found: dict[tuple[str, float], tuple[float, GpuRun]] = {}
    for dropout, inner_dropout in MULTI30K_DROPOUTS:
        name = f"dropout {dropout}, {inner_dropout} inside"
        settings = [
            f"model.dropout={dropout}", f"model.attention_dropout={inner_dropout}",
            f"model.activation_dropout={inner_dropout}", f"training.seed={bench.seeds[0]}",
        ]  # fmt: skip
        run = bench.train(f"multi30k-{dropout}-{inner_dropout}", data, "small", *MULTI30K_SETTINGS, *settings)
        for penalty in MULTI30K_LENGTH_PENALTIES:
            translations = run.translate(valid, **{**MULTI30K_DECODING, "length_penalty": penalty})
            score = bleu(translations, valid_references, lowercase=True)
            found[name, penalty] = score, run
            yield Figure(
                f"Multi30k valid, lowercased BLEU, {name}, length penalty {penalty}", f"{score:.2f}", "", score
            )
    name, penalty = max(found, key=lambda choice: found[choice][0])
    _, run = found[name, penalty]
    translations = run.translate(test, **{**MULTI30K_DECODING, "length_penalty": penalty})
    score = bleu(translations, test_references, lowercase=True)
    text = f"{score:.2f} after {run.wall_s:.1f} s ({name}, length penalty {penalty})"
    yield Figure("Multi30k test2016, lowercased BLEU of the best on valid", text, "41", score)


def measure_europarl(bench: GpuBench) -> Iterator[Figure]:
    """As many steps as fit into the time, given the speed of a short run with the same settings."""
    data = bench.prepare_europarl()
    short = bench.train("short", data, "modern", *EUROPARL_SETTINGS, "training.steps=120").steps
    step_s = (short[-1].at_s - short[50].at_s) / (len(short) - 51)
    planned_steps = int((bench.seconds - COMPILE_S) / step_s)
    run = bench.train("europarl", data, "modern", *EUROPARL_SETTINGS, f"training.steps={planned_steps}")
    steps = run.steps
    trained_s = steps[-1].at_s - RunFolder(run.folder).config.stat().st_mtime
    text = f"{len(steps)} steps, {trained_s:.0f} s with compilation, validation loss {run.valid_nll:.3f}"
    yield Figure("modern on europarl", text, "", {"steps": len(steps), "seconds": trained_s})
    yield speed_figure("modern on europarl", run.tokens_per_s(after=100))
    yield from score_translations(
        bench, "modern", lambda lines, penalty: run.translate(lines, beam=4, length_penalty=penalty)
    )


def measure_marian_quality(bench: GpuBench) -> Iterator[Figure]:
    data = bench.prepare_europarl()
    tokenizer = data.tokenizer
    trainer = MarianTrainer(data, torch.device("cuda"))
    rate = huggingface_marianmt.train_for(trainer, trainer.batches(MARIAN_TOKENS, NEVER), bench.seconds)
    yield speed_figure(f"MarianMT on europarl, {bench.seconds:.0f} s", rate)
    trainer.model.eval()
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, tokenizer.padded_vocab_size)

    def translate(lines: Sequence[str], penalty: float) -> list[str]:
        sources = [(*tokenizer.encode(line), tokenizer.eos_id) for line in lines]
        with torch.autocast("cuda", torch.bfloat16):
            found = generate_all(trainer.model, sources, special_tokens, penalty)
        return [tokenizer.decode(found[source]) for source in sources]

    yield from score_translations(bench, "MarianMT", translate)


def generate_all(
    peer: Any, sources: Sequence[SourceTokens], special_tokens: SpecialTokens, length_penalty: float = 0.0
) -> dict[SourceTokens, list[int]]:
    """Translations by Hugging Face's `generate`, beam 4, by source."""
    found: dict[SourceTokens, list[int]] = {}
    for batch in make_batches(set(sources), GENERATE_BATCH_TOKENS):
        forbidden = special_tokens.forbidden
        out = generate(peer, batch, beam=4, max_new_tokens=200, forbidden=forbidden, length_penalty=length_penalty)
        found.update(zip(batch, out, strict=True))
    return found


def score_translations(
    bench: GpuBench, name: str, translate: Callable[[Sequence[str], float], list[str]]
) -> Iterator[Figure]:
    for corpus, split, limit in ((EUROPARL, "valid", 1500), (NEWSTEST, "newstest2014", 3003)):
        sources, references = (side[:limit] for side in bench.read(corpus, split))
        for penalty in LENGTH_PENALTIES:
            score = bleu(translate(sources, penalty), references)
            yield Figure(f"{name}: BLEU on {split}, length penalty {penalty}", f"{score:.2f}", "", score)


def bleu(translations: Sequence[str], references: Sequence[str], **options: Any) -> float:
    return float(sacrebleu.corpus_bleu(list(translations), [list(references)], **options).score)


def measure_decoding(bench: GpuBench) -> Iterator[Figure]:
    """Beam 4 on newstest2014 with the same weights; no length penalty, so that both search for the same."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # It makes `generate` several times slower.
    data = bench.prepare_europarl()
    translator = load(bench.train("decoding", data, "transformer-base", *DECODING_SETTINGS).folder)
    assert isinstance(translator, Translator)
    model, tokenizer = translator.model, data.tokenizer
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, model.architecture.vocabulary)
    lines, references = bench.read(NEWSTEST, "newstest2014")
    sources = [(*tokenizer.encode(line), tokenizer.eos_id) for line in lines]
    peer = make_m2m100(model, tokenizer.decoder_start_id, tokenizer.eos_id, PAD_ID)
    options = DecodingSettings(beam=4, length_penalty=0.0, max_length_ratio=2.0)

    def search_all() -> dict[SourceTokens, list[int]]:
        found: dict[SourceTokens, list[int]] = {}
        for batch in make_batches(set(sources), GPU_BATCH_TOKENS):
            results = search(model, pack_sentences(batch), options, special_tokens)
            found.update((source, best.tokens) for source, [best] in zip(batch, results, strict=True))
        return found

    with torch.autocast("cuda", torch.bfloat16):
        ours = search_all()
        our_s = median_s(search_all, 3, "cuda")
        generate(peer, sources[:200], beam=4, max_new_tokens=20, forbidden=special_tokens.forbidden)
        started_at = time.perf_counter()
        theirs = generate_all(peer, sources, special_tokens)
        their_s = time.perf_counter() - started_at
    for name, seconds in (("ours", our_s), ("Hugging Face generate", their_s)):
        rate = len(sources) / seconds
        yield Figure(f"beam 4 on newstest2014, {name}: sentences/s", f"{rate:.0f}", "", rate)
    yield Figure("beam 4: ours against generate", f"{their_s / our_s:.1f} x", "8 x", their_s / our_s)
    identical = sum(ours[source] == theirs[source] for source in sources)
    yield Figure("beam 4: same translation", f"{identical} of {len(sources)}", "", identical)
    scores = [bleu([tokenizer.decode(found[source]) for source in sources], references) for found in (ours, theirs)]
    yield Figure("beam 4: BLEU of ours; of generate", f"{scores[0]:.2f}; {scores[1]:.2f}", "", scores)


def make_train_step(bench: GpuBench) -> tuple[TrainStep, Prefetcher[WorkerBatch]]:
    """Forward and backward pass of transformer-base at 25,600 tokens per side, and its batches; no training loop."""
    cluster, data = join_cluster(), bench.prepare_europarl()
    settings = resolve("transformer-base", ["batch.tokens=25600"]).settings
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    model, tokens = Transformer(architecture).to(cluster.device).train(), settings.batch.tokens
    loader = DataLoader(data.pairs("train"), data.tokenizer, tokens, settings.batch.seed, tokens, fixed_sizes=True)
    precision = Precision.choose(settings, cluster.device)
    train_step = TrainStep(model, loader, precision, settings.training, cluster.device, print)
    return train_step, Prefetcher(loader.batches(Position(), [1.0], 0), 8)


def measure_data_wait(bench: GpuBench) -> Iterator[Figure]:
    """The same steps with prefetched batches and with batches that are in memory already."""
    train_step, prefetcher = make_train_step(bench)
    in_memory = [next(prefetcher) for _ in range(60)]

    def train_s(worker_batches: Iterator[WorkerBatch]) -> float:
        return measure_s(lambda: [train_step(next(worker_batches), 1) for _ in range(60)], "cuda")

    train_s(iter(in_memory))
    in_memory_s = min(train_s(iter(in_memory)) for _ in range(2))
    prefetched_s = min(train_s(prefetcher) for _ in range(2))
    prefetcher.close()
    idle = max(0.0, 1 - in_memory_s / prefetched_s)
    yield Figure("GPU idle, waiting for data", f"{idle:.1%}", "under 1 %", idle)


def profile_step(bench: GpuBench) -> Iterator[Figure]:
    """Time of a forward and backward pass, and its 20 longest kernels."""
    train_step, prefetcher = make_train_step(bench)
    worker_batches = [next(prefetcher) for _ in range(20)]
    prefetcher.close()

    def run_steps(count: int) -> None:
        for batch in worker_batches[:count]:
            train_step(batch, 1)

    run_steps(20)
    pass_ms = 1e3 * measure_s(lambda: run_steps(20), "cuda") / 20
    yield Figure("forward and backward pass, 25,600 tokens per side", f"{pass_ms:.2f} ms", "", pass_ms)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run_steps(3)
        torch.cuda.synchronize()
    kernels = sorted(profile.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    for kernel in kernels[:20]:
        kernel_ms = kernel.self_device_time_total / 3e3
        yield Figure(f"kernel {kernel.key[:90]}", f"{kernel_ms:.3f} ms in {kernel.count // 3} calls", "", kernel_ms)


def measure_ablations(bench: GpuBench) -> Iterator[Figure]:
    """Variants of the recipe `modern`, all with the same number of tokens."""
    data = bench.prepare_europarl()
    for number, (name, overrides) in enumerate(ABLATIONS.items()):
        steps = 1000 if "batch.tokens=12800" in overrides else 500
        settings = ["batch.tokens=25600", f"training.steps={steps}", "schedule.warmup_steps=200", *overrides]
        run = bench.train(f"ablation-{number}", data, "modern", *settings)
        value = {"nll": run.valid_nll, "tokens_per_s": run.tokens_per_s(after=60), "wall_s": run.wall_s}
        text = f"{value['nll']:.4f}, {value['tokens_per_s'] / 1e6:.3f} M tokens/s"
        yield Figure(f"validation loss and speed, {name}", text, "", value)


SECTIONS: dict[str, Callable[[GpuBench], Iterator[Figure]]] = {
    "peak-flops": measure_peak_flops,
    "speed": measure_speed,
    "data-wait": measure_data_wait,
    "step": profile_step,
    "marian": measure_marian,
    "decoding": measure_decoding,
    "multi30k": measure_multi30k,
    "multi30k-choose": choose_multi30k,
    "europarl": measure_europarl,
    "compiled-marian": measure_compiled_marian,
    "marian-quality": measure_marian_quality,
    "ablations": measure_ablations,
}
DEFAULT_SECTIONS = ("peak-flops", "speed", "data-wait", "marian", "decoding", "multi30k", "europarl")


def main() -> None:
    parser = make_parser(__doc__, SECTIONS, DEFAULT_SECTIONS)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    parser.add_argument("--seconds", type=float, default=240.0, help="training time on europarl")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of the runs on Multi30k")
    parser.add_argument("--folder", type=Path, help="folder for data and runs (default: a temporary one)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No GPU found: run this benchmark on a machine with a CUDA device.")
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as temporary:
        bench = GpuBench(options.corpora, options.folder or Path(temporary), options.seconds, options.seeds)
        print_figures("gpu", run_sections(bench, options.only), device=device)


def run_sections(bench: GpuBench, names: Sequence[str]) -> Iterator[Figure]:
    for name in names:
        started_at = time.perf_counter()
        try:
            yield from SECTIONS[name](bench)
        except Exception:  # The other sections can still be measured.
            print(f"{name} was not measured:\n{traceback.format_exc()}", file=sys.stderr)
        torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - started_at:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Beam search with the same weights on torch, in a CTranslate2 export (int8) and by Hugging Face's `generate`.

The model is trained for some steps on the demo corpus, so that it ends its sentences by itself, or is a given run. All
three search the same test sentences with beam 4 and without a length penalty: with one they would not agree on the best
translation (Hugging Face divides by length^penalty, Dragoman by ((5 + length) / 6)^alpha). They alternate, with batches
of similar lengths as Dragoman's translator makes them, and with batches in the order of the sentences. The BLEU of the
exports is measured with the default settings. With `--steps 0` the weights are random and all translations equally
long: enough to compare the speed of models that are too large to train here.

    python -m benchmarks.decode [--recipe tiny] [--steps 350] [--sentences 256] [--rounds 5] [--device cpu]
    python -m benchmarks.decode --model runs/demo/run --data runs/demo/data
    python -m benchmarks.decode --recipe transformer-base --vocabulary 32768 --steps 0 --sentences 32
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import dragoman
from benchmarks import huggingface_m2m100, toy_models
from benchmarks.command_line import make_parser
from benchmarks.reporting import print_json, print_row
from benchmarks.timing import measure_s
from benchmarks.toy_models import TextPairs
from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import PAD_ID
from dragoman.decoding import scoring
from dragoman.decoding.beam_search import search
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.length_rules import EXTRA_LENGTH
from dragoman.decoding.line_translator import make_batches
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.exporting.exporter import export
from dragoman.model.model_folder import load_model
from dragoman.model.transformer import Transformer
from dragoman.recipe import recipe_names
from dragoman.settings import DecodingSettings

BEAM = 4
MAX_NEW_TOKENS = 100
RANDOM_MODEL_TOKENS = 32
"""Tokens of every translation by a model with random weights, which does not end by itself."""
OURS, INT8, GENERATE = "torch", "export int8", "transformers"
Tokens = Sequence[int]
Search = Callable[[list[list[Tokens]]], list[list[int]]]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--recipe", default="tiny", choices=[name for name in recipe_names() if name != "modern"])
    parser.add_argument(
        "--vocabulary", type=int, default=toy_models.EMBEDDING_ROWS,
        help=f"rows of the embedding; the tokenizer has {toy_models.VOCABULARY_SIZE} pieces",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=toy_models.STEPS, help="training steps; 0: random weights")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", type=Path, help="a trained run; nothing is trained then")
    parser.add_argument("--data", type=Path, help="the data set of that run")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        model_folder = Path(folder) / "model"
        if options.model is None:
            test = toy_models.make_trained_model(
                model_folder, recipe=options.recipe, embedding_rows=options.vocabulary, steps=options.steps,
                test_pairs=options.sentences, device=options.device,
            )  # fmt: skip
        else:
            model_folder = find_model(options.model)
            test = list(zip(*DataSet(options.data).text("test"), strict=True))[: options.sentences]
        exports = {kind: export(model_folder, Path(folder) / kind, "ctranslate2", kind) for kind in ("float32", "int8")}
        report(model_folder, exports, test, options)


@dataclass(frozen=True)
class SearchComparison:
    """A row of the table: median seconds and ratios for one order of the sentences."""

    batches: str
    torch_s: float
    int8_s: float
    transformers_s: float
    torch_speedup: float
    """Of our torch search over `generate`."""
    int8_speedup: float
    """Of the int8 export over our torch search."""
    int8_speedup_over_transformers: float
    identical: int
    """Sentences for which our torch search and `generate` give the same translation."""
    not_worse: int
    """Sentences for which our translation has at least the log-probability of `generate`'s."""


def report(model_folder: Path, exports: dict[str, Path], test: TextPairs, options: argparse.Namespace) -> None:
    is_trained = options.steps > 0 or options.model is not None
    rows = compare_searches(model_folder, exports["int8"], test, is_trained, options)
    name = str(options.recipe if options.model is None else options.model)
    print(f"{name} on {options.device}, {torch.get_num_threads()} threads")
    print(f"{len(test)} sentences, beam {BEAM}, median of {options.rounds} rounds")
    print_row(
        "batches", "torch", "int8 export", "transformers", "torch against transformers", "int8 against torch",
        "int8 against transformers", "same translation as transformers", "log-probability not worse",
    )  # fmt: skip
    print_row(*["---"] * 9)
    for row in rows:
        times_s = (f"{seconds:.2f} s" for seconds in (row.torch_s, row.int8_s, row.transformers_s))
        speedups = (row.torch_speedup, row.int8_speedup, row.int8_speedup_over_transformers)
        counts = (f"{count} of {len(test)}" for count in (row.identical, row.not_worse))
        print_row(row.batches, *times_s, *(f"{speedup:.2f} x" for speedup in speedups), *counts)
    bleu = {}
    if is_trained:
        bleu = {kind: score(path, test, options.device) for kind, path in {OURS: model_folder, **exports}.items()}
        print("\n" + "\n".join(f"BLEU, {kind}: {value:.2f}" for kind, value in bleu.items()))
    print_json("decode", model=name, device=options.device, rows=[asdict(row) for row in rows], bleu=bleu)


def compare_searches(
    model_folder: Path, int8_export: Path, test: TextPairs, is_trained: bool, options: argparse.Namespace
) -> list[SearchComparison]:
    stored = load_model(model_folder, options.device)
    model, tokenizer = stored.model, stored.description.tokenizer
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, model.architecture.vocabulary)
    peer = huggingface_m2m100.make_m2m100(model, tokenizer.decoder_start_id, tokenizer.eos_id, PAD_ID)
    sources = [(*tokenizer.encode(english), tokenizer.eos_id) for english, _ in test]
    max_length_ratio, max_new_tokens = 3.0, MAX_NEW_TOKENS
    if not is_trained:
        max_length_ratio = (RANDOM_MODEL_TOKENS - EXTRA_LENGTH + 0.5) / len(sources[0])
        max_new_tokens = RANDOM_MODEL_TOKENS
    int8 = dragoman.load(int8_export, options.device, beam=BEAM, length_penalty=0.0, max_length_ratio=max_length_ratio)
    assert isinstance(int8, CTranslate2Translator)
    searches = {
        OURS: torch_search(model, special_tokens, max_length_ratio),
        INT8: export_search(int8),
        GENERATE: transformers_search(peer, special_tokens, max_new_tokens),
    }
    size = max(1, options.batch_tokens // statistics.mean(map(len, sources)).__ceil__())
    orders = {
        "sorted by length": list(make_batches(sources, options.batch_tokens)),
        "in order": [sources[begin : begin + size] for begin in range(0, len(sources), size)],
    }
    return [compare(model, special_tokens, searches, name, order, options) for name, order in orders.items()]


def torch_search(model: Transformer, special_tokens: SpecialTokens, max_length_ratio: float) -> Search:
    options = DecodingSettings(beam=BEAM, length_penalty=0.0, max_length_ratio=max_length_ratio)
    return lambda order: [
        best.tokens for batch in order for [best] in search(model, pack_sentences(batch), options, special_tokens)
    ]


def export_search(translator: CTranslate2Translator) -> Search:
    return lambda order: [best.tokens for batch in translator.search_batches(order) for [best] in batch]


def transformers_search(peer: object, special_tokens: SpecialTokens, max_new_tokens: int) -> Search:
    settings = {"beam": BEAM, "max_new_tokens": max_new_tokens, "forbidden": special_tokens.forbidden}
    return lambda order: [tokens for batch in order for tokens in huggingface_m2m100.generate(peer, batch, **settings)]


def compare(
    model: Transformer,
    special_tokens: SpecialTokens,
    searches: dict[str, Search],
    name: str,
    order: list[list[Tokens]],
    options: argparse.Namespace,
) -> SearchComparison:
    """Time all searches, alternating, and compare their translations."""
    found = {kind: run(order) for kind, run in searches.items()}
    times_s: dict[str, list[float]] = {kind: [] for kind in searches}
    for _ in range(options.rounds):
        for kind, run in searches.items():
            times_s[kind].append(measure_s(lambda run=run: run(order), options.device))

    def speedup(fast: str, slow: str) -> float:
        return round(statistics.median(a / b for a, b in zip(times_s[slow], times_s[fast], strict=True)), 2)

    def is_not_worse(source: Tokens, ours: Tokens, theirs: Tokens) -> bool:
        if ours == theirs:
            return True
        log_probabilities = [log_probability(model, source, tokens, special_tokens) for tokens in (ours, theirs)]
        return log_probabilities[0] > log_probabilities[1] - 1e-3

    sources = [source for batch in order for source in batch]
    both = list(zip(found[OURS], found[GENERATE], strict=True))
    return SearchComparison(
        name,
        *(round(statistics.median(times_s[kind]), 3) for kind in (OURS, INT8, GENERATE)),
        torch_speedup=speedup(OURS, GENERATE),
        int8_speedup=speedup(INT8, OURS),
        int8_speedup_over_transformers=speedup(INT8, GENERATE),
        identical=sum(ours == theirs for ours, theirs in both),
        not_worse=sum(is_not_worse(source, *pair) for source, pair in zip(sources, both, strict=True)),
    )


def log_probability(model: Transformer, source: Tokens, tokens: Tokens, special_tokens: SpecialTokens) -> float:
    batch = Batch(
        pack_sentences([source]),
        pack_sentences([[special_tokens.decoder_start_id, *tokens]]),
        torch.tensor([*tokens, special_tokens.eos_id]),
    )
    with torch.inference_mode():
        return -float(model(batch.to(model.embedding.weight.device))[1])


def score(model: Path, test: TextPairs, device: str) -> float:
    """BLEU of a model or an export with its default settings."""
    sources, references = zip(*test, strict=True)
    return round(scoring.score(dragoman.load(model, device).translate(sources), references).bleu.value, 2)


if __name__ == "__main__":
    main()

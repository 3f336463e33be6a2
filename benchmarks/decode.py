"""Beam search on torch, in an export (CTranslate2, int8) and by Hugging Face's `generate`: same weights, who is faster?

A model is trained for a moment on the demo corpus, so that it ends its sentences by itself, or a given run is taken.
All search the same test sentences with a beam of 4. All are asked for the most likely translation: without a length
penalty they agree on what is best and when to stop (Hugging Face divides by length^penalty, we by
((5 + length) / 6)^alpha). They take turns, in batches of like length as our translator makes them and in batches as the
sentences come. The last lines tell what an export costs in quality, searched as users would. With `--steps 0` the
weights are random and all translations equally long: enough to compare the speed of models too large to train here.

    python -m benchmarks.decode [--recipe tiny] [--steps 350] [--sentences 256] [--rounds 5] [--device cpu]
    python -m benchmarks.decode --model runs/demo/run --data runs/demo/data
    python -m benchmarks.decode --recipe transformer-base --vocabulary 32768 --steps 0 --sentences 32
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

import dragoman
from benchmarks import peers
from dragoman.batching.packing import Batch, pack_sentences
from dragoman.corpus import demo
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import PAD_ID, Tokenizer, count_words, train
from dragoman.decoding import scoring
from dragoman.decoding.beam_search import search
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.line_translator import make_batches
from dragoman.decoding.search_limits import EXTRA_LENGTH
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.translator import find_model
from dragoman.export.exporter import export
from dragoman.model.architecture import architecture_of
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription, load_model
from dragoman.model.transformer import Transformer
from dragoman.recipe import recipe_names
from dragoman.settings import DecodingSettings, TokenizerSettings

BEAM = 4
LONGEST = 100
ENDLESS = 32
"""Tokens of every translation by a model that has not learned to end."""
Tokens = Sequence[int]
Search = Callable[[list[list[Tokens]]], list[list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tiny", choices=[name for name in recipe_names() if name != "modern"])
    parser.add_argument("--vocabulary", type=int, default=1536, help="rows of the matrix; pieces are 1500")
    parser.add_argument("--steps", type=int, default=350, help="of training")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", type=Path, help="a trained run, instead of training")
    parser.add_argument("--data", type=Path, help="its data set")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model"
        if options.model is None:
            test = train_for_a_moment(made, options)
        else:
            made = find_model(options.model)
            test = list(zip(*DataSet(options.data).text("test"), strict=True))[: options.sentences]
        exports = {kind: export(made, Path(folder) / kind, "ctranslate2", kind) for kind in ("float32", "int8")}
        measure(made, exports, test, options)


def measure(
    model_folder: Path, exports: dict[str, Path], test: list[tuple[str, str]], options: argparse.Namespace
) -> None:
    stored = load_model(model_folder, options.device)
    model, tokenizer = stored.model, stored.description.tokenizer
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, model.architecture.vocabulary)
    peer = peers.m2m100(model, tokenizer.decoder_start_id, tokenizer.eos_id, PAD_ID)
    sources = [(*tokenizer.encode(english), tokenizer.eos_id) for english, _ in test]
    is_trained = options.steps > 0 or options.model is not None
    ratio, longest = (3.0, LONGEST) if is_trained else ((ENDLESS - EXTRA_LENGTH + 0.5) / len(sources[0]), ENDLESS)
    int8 = dragoman.load(exports["int8"], options.device, beam=BEAM, alpha=0.0, max_length_ratio=ratio)
    assert isinstance(int8, CTranslate2Translator)
    searches = {
        "dragoman": ours(model, special_tokens, ratio),
        "export int8": exported(int8),
        "transformers": theirs(peer, special_tokens, longest),
    }
    size = max(1, options.batch_tokens // statistics.mean(map(len, sources)).__ceil__())
    orders = {
        "sorted by length": list(make_batches(sources, options.batch_tokens)),
        "as they come": [sources[begin : begin + size] for begin in range(0, len(sources), size)],
    }
    rows = [compare(model, special_tokens, searches, name, order, options) for name, order in orders.items()]
    name = options.recipe if options.model is None else options.model
    print(f"\n{name} on {options.device}, {torch.get_num_threads()} threads")
    print(f"{len(sources)} sentences, beam {BEAM}, median of {options.rounds} rounds")
    print(
        f"{'batches':<18}{'dragoman':>11}{'export int8':>13}{'transformers':>14}{'dragoman':>12}{'int8':>8}{'int8':>8}"
    )
    print(f"{'':<56}{'/transf.':>12}{'/drag.':>8}{'/transf.':>9}{'same as transf.':>17}{'score not worse':>17}")
    for row in rows:
        print(
            f"{row['batches']:<18}{row['dragoman_s']:>9.2f} s{row['export_s']:>11.2f} s{row['transformers_s']:>12.2f} s"
            f"{row['ratio']:>11.2f}x{row['export_ratio']:>7.2f}x{row['export_to_transformers']:>8.2f}x"
            f"{row['same']:>11} / {len(sources)}{row['not_worse']:>11} / {len(sources)}"
        )
    quality = {}
    if is_trained:
        folders = {"dragoman": model_folder, **exports}
        quality = {who: bleu(path, test, options.device) for who, path in folders.items()}
        print("\n" + "\n".join(f"BLEU, {who}: {value:.2f}" for who, value in quality.items()))
    print(
        json.dumps({"benchmark": "decode", "model": str(name), "device": options.device, "rows": rows, "bleu": quality})
    )


def train_for_a_moment(folder: Path, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Writes a model folder and gives sentences to test it with."""
    corpus = demo.generate(8000, valid=1, test=options.sentences)
    tokenizer = learn_tokenizer([side for pair in corpus.train for side in pair])
    torch.manual_seed(1)
    model = Transformer(architecture_of(options.recipe).replaced(vocabulary=options.vocabulary)).to(options.device)
    if options.steps:
        learn(model, tokenizer, corpus.train, options.steps)
    folder.mkdir()
    ModelDescription(model.architecture, Languages("en", "de"), DecodingSettings(), tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)
    return corpus.test if options.steps else equally_long(corpus.train, tokenizer)[: options.sentences]


def equally_long(pairs: list[tuple[str, str]], tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """The pairs whose source has the most usual number of tokens."""
    lengths = [len(tokenizer.encode(source)) for source, _ in pairs]
    return [pair for pair, length in zip(pairs, lengths, strict=True) if length == statistics.mode(lengths)]


def bleu(model: Path, test: list[tuple[str, str]], device: str) -> float:
    sources, references = zip(*test, strict=True)
    return round(scoring.score(dragoman.load(model, device).translate(sources), references).bleu.value, 2)


def ours(model: Transformer, special_tokens: SpecialTokens, ratio: float) -> Search:
    options = DecodingSettings(beam=BEAM, length_penalty=0.0, max_length_ratio=ratio)
    return lambda order: [
        best.tokens for batch in order for [best] in search(model, pack_sentences(batch), options, special_tokens)
    ]


def exported(translator: CTranslate2Translator) -> Search:
    return lambda order: [best.tokens for batch in translator.search_batches(order) for [best] in batch]


def theirs(peer: object, special_tokens: SpecialTokens, longest: int) -> Search:
    settings = {"beam": BEAM, "max_new_tokens": longest, "forbidden": special_tokens.forbidden}
    return lambda order: [tokens for batch in order for tokens in peers.generate(peer, batch, **settings)]


def compare(
    model: Transformer,
    special_tokens: SpecialTokens,
    searches: dict[str, Search],
    name: str,
    order: list[list[Tokens]],
    options: argparse.Namespace,
) -> dict[str, object]:
    """Seconds for all batches, by turns, and how many of the translations are the same."""
    found = {who: work(order) for who, work in searches.items()}
    spans: dict[str, list[float]] = {who: [] for who in searches}
    for _ in range(options.rounds):
        for who, work in searches.items():
            spans[who].append(seconds(lambda work=work: work(order), options.device))

    def ratio(slow: str, fast: str) -> float:
        return round(statistics.median(a / b for a, b in zip(spans[slow], spans[fast], strict=True)), 2)

    sources = [source for batch in order for source in batch]
    mine, expected = found["dragoman"], found["transformers"]
    not_worse = sum(
        a == b
        or log_probability(model, source, a, special_tokens) > log_probability(model, source, b, special_tokens) - 1e-3
        for source, a, b in zip(sources, mine, expected, strict=True)
    )
    dragoman_s, export_s, transformers_s = (round(statistics.median(spans[who]), 3) for who in searches)
    return {
        "batches": name, "dragoman_s": dragoman_s, "export_s": export_s, "transformers_s": transformers_s,
        "ratio": ratio("transformers", "dragoman"), "export_ratio": ratio("dragoman", "export int8"),
        "export_to_transformers": ratio("transformers", "export int8"),
        "same": sum(a == b for a, b in zip(mine, expected, strict=True)), "not_worse": not_worse,
        "tokens": sum(len(tokens) + 1 for tokens in mine),
    }  # fmt: skip


def seconds(work: Callable[[], object], device: str) -> float:
    started_at = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started_at


def log_probability(model: Transformer, source: Tokens, tokens: Tokens, special_tokens: SpecialTokens) -> float:
    batch = Batch(
        pack_sentences([source]),
        pack_sentences([[special_tokens.decoder_start_id, *tokens]]),
        torch.tensor([*tokens, special_tokens.eos_id]),
    )
    with torch.inference_mode():
        return -float(model(batch.to(model.embedding.weight.device))[1])


def learn_tokenizer(lines: list[str]) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        train(count_words(lines), TokenizerSettings(vocabulary_size=1500), path)
        return Tokenizer.load(path)


def learn(model: Transformer, tokenizer: Tokenizer, pairs: list[tuple[str, str]], steps: int) -> None:
    device, end = model.embedding.weight.device, tokenizer.eos_id
    encoded = [tuple([*tokenizer.encode(side), end] for side in pair) for pair in pairs]
    rng = random.Random(1)
    optimizer = torch.optim.Adam(model.train().parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4 / model.architecture.d_model, steps)
    for _ in range(steps):
        drawn = rng.sample(encoded, 40)
        batch = Batch(
            pack_sentences([source for source, _ in drawn]),
            pack_sentences([[tokenizer.decoder_start_id, *target[:-1]] for _, target in drawn]),
            torch.tensor([token for _, target in drawn for token in target]),
        ).to(device)
        loss_sum, _ = model(batch, smoothing=0.1)
        optimizer.zero_grad()
        (loss_sum / len(batch.labels)).backward()
        optimizer.step()
        schedule.step()
    model.eval()


if __name__ == "__main__":
    main()

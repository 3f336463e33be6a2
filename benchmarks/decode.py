"""Beam search against Hugging Face's `generate`: same weights, same hypotheses, how much faster?

A model is trained for a moment on the demo corpus, so that it ends its sentences by itself, and both search the same
test sentences with a beam of 4. Both are asked for the most likely translation: without a length penalty the two agree
on what is best and when to stop (Hugging Face divides by length^penalty, we by ((5 + length) / 6)^alpha). They take
turns, in batches of like length as our translator makes them and in batches as the sentences come.

    python -m benchmarks.decode [--recipe tiny] [--steps 350] [--sentences 256] [--rounds 5] [--device cpu]
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

from benchmarks import peers
from dragoman.config import Decoding, recipe_names
from dragoman.config import Tokenizer as TokenizerSettings
from dragoman.corpus import demo
from dragoman.corpus.tokenizer import PAD, Tokenizer, count_words, train
from dragoman.decoding.lines import batches
from dragoman.decoding.search import Marks, search
from dragoman.decoding.translator import marks_of
from dragoman.model.architecture import architecture_of
from dragoman.model.packing import Batch, pack_sentences
from dragoman.model.transformer import Transformer

BEAM = 4
LONGEST = 100
Tokens = Sequence[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tiny", choices=[name for name in recipe_names() if name != "modern"])
    parser.add_argument("--vocabulary", type=int, default=1536, help="rows of the matrix; pieces are 1500")
    parser.add_argument("--steps", type=int, default=350, help="of training")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    corpus = demo.generate(8000, valid=1, test=options.sentences)
    tokenizer = learn_tokenizer([side for pair in corpus.train for side in pair])
    torch.manual_seed(1)
    model = Transformer(architecture_of(options.recipe).replaced(vocabulary=options.vocabulary)).to(options.device)
    learn(model, tokenizer, corpus.train, options.steps)
    marks = marks_of(tokenizer, options.vocabulary)
    peer = peers.m2m100(model, tokenizer.start, tokenizer.end, PAD)

    sources = [(*tokenizer.encode(english), tokenizer.end) for english, _ in corpus.test]
    size = max(1, options.batch_tokens // statistics.mean(map(len, sources)).__ceil__())
    orders = {
        "sorted by length": list(batches(sources, options.batch_tokens)),
        "as they come": [sources[begin : begin + size] for begin in range(0, len(sources), size)],
    }
    rows = [compare(model, peer, marks, name, order, options.rounds, options.device) for name, order in orders.items()]
    print(
        f"\n{options.recipe} on {options.device}, {torch.get_num_threads()} threads, {options.steps} steps of training"
    )
    print(f"{len(sources)} sentences, beam {BEAM}, median of {options.rounds} rounds")
    print(f"{'batches':<18}{'dragoman':>12}{'transformers':>14}{'faster':>9}{'same':>12}{'score not worse':>17}")
    for row in rows:
        print(
            f"{row['batches']:<18}{row['dragoman_s']:>10.2f} s{row['transformers_s']:>12.2f} s{row['ratio']:>8.2f}x"
            f"{row['same']:>7} / {len(sources)}{row['not_worse']:>10} / {len(sources)}"
        )
    print(json.dumps({"benchmark": "decode", "preset": options.recipe, "device": options.device, "rows": rows}))


def compare(
    model: Transformer, peer: object, marks: Marks, name: str, order: list[list[Tokens]], rounds: int, device: str
) -> dict[str, object]:
    """Seconds for all batches, ours and theirs by turns, and how many of the translations are the same."""
    options = Decoding(beam=BEAM, alpha=0.0, max_ratio=3)

    def ours() -> list[list[int]]:
        return [best.tokens for batch in order for [best] in search(model, pack_sentences(batch), options, marks)]

    def theirs() -> list[list[int]]:
        settings = {"beam": BEAM, "max_new_tokens": LONGEST, "forbidden": marks.forbidden}
        return [tokens for batch in order for tokens in peers.generate(peer, batch, **settings)]

    our_s, their_s = [], []
    found, expected = ours(), theirs()
    for _ in range(rounds):
        our_s.append(seconds(ours, device))
        their_s.append(seconds(theirs, device))
    same = sum(a == b for a, b in zip(found, expected, strict=True))
    sources = [source for batch in order for source in batch]
    not_worse = sum(
        a == b or log_probability(model, source, a, marks) > log_probability(model, source, b, marks) - 1e-3
        for source, a, b in zip(sources, found, expected, strict=True)
    )
    ratio = statistics.median(theirs / ours for ours, theirs in zip(our_s, their_s, strict=True))
    return {
        "batches": name, "dragoman_s": round(statistics.median(our_s), 3),
        "transformers_s": round(statistics.median(their_s), 3), "ratio": round(ratio, 2), "same": same,
        "not_worse": not_worse, "tokens": sum(len(tokens) + 1 for tokens in found),
    }  # fmt: skip


def seconds(work: Callable[[], object], device: str) -> float:
    started_at = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started_at


def log_probability(model: Transformer, source: Tokens, tokens: Tokens, marks: Marks) -> float:
    batch = Batch(
        pack_sentences([source]), pack_sentences([[marks.start, *tokens]]), torch.tensor([*tokens, marks.end])
    )
    with torch.inference_mode():
        return -float(model(batch.to(model.embedding.weight.device))[1])


def learn_tokenizer(lines: list[str]) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        train(count_words(lines), TokenizerSettings(vocabulary=1500), path)
        return Tokenizer.load(path)


def learn(model: Transformer, tokenizer: Tokenizer, pairs: list[tuple[str, str]], steps: int) -> None:
    device, end = model.embedding.weight.device, tokenizer.end
    encoded = [tuple([*tokenizer.encode(side), end] for side in pair) for pair in pairs]
    rng = random.Random(1)
    optimizer = torch.optim.Adam(model.train().parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4 / model.architecture.d_model, steps)
    for _ in range(steps):
        drawn = rng.sample(encoded, 40)
        batch = Batch(
            pack_sentences([source for source, _ in drawn]),
            pack_sentences([[tokenizer.start, *target[:-1]] for _, target in drawn]),
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

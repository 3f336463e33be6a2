"""Models for measurements: trained for seconds on the demo corpus, or with random weights, written as model folders."""

import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.corpus import demo
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.model.architecture import architecture_of
from dragoman.model.dropout import draw_seeds, seed_dropout
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings, TokenizerSettings

CORPUS_PAIRS = 8000
VOCABULARY_SIZE = 1500
STEPS = 350
"""Steps after which `tiny` ends its sentences by itself."""
EMBEDDING_ROWS = 1536
"""Vocabulary of the model: the tokenizer's, padded."""

TextPairs = Sequence[tuple[str, str]]


def make_trained_model(
    folder: Path, *, recipe: str = "tiny", embedding_rows: int = EMBEDDING_ROWS, steps: int = STEPS,
    test_pairs: int = 1, device: str = "cpu",
) -> TextPairs:  # fmt: skip
    """Write the folder of a model that was trained for some steps. Returns test pairs.

    With no steps the weights are random, and the sources of the test pairs all have the same number of tokens.
    """
    corpus = demo.generate(CORPUS_PAIRS, valid=1, test=test_pairs)
    tokenizer = train_tokenizer([side for pair in corpus.train for side in pair])
    torch.manual_seed(1)
    model = Transformer(architecture_of(recipe).replaced(vocabulary=embedding_rows)).to(device)
    if steps:
        train_model(model, tokenizer, corpus.train, steps)
    write_model(folder, model, tokenizer, DecodingSettings())
    return corpus.test if steps else select_equal_lengths(corpus.train, tokenizer)[:test_pairs]


def make_random_model(folder: Path, recipe: str, decoding: DecodingSettings) -> None:
    """Write the folder of a model with random weights, whose translations are as long as `decoding` allows."""
    corpus = demo.generate(CORPUS_PAIRS, valid=1, test=1)
    tokenizer = train_tokenizer([side for pair in corpus.train for side in pair])
    torch.manual_seed(1)
    write_model(folder, Transformer(architecture_of(recipe)), tokenizer, decoding)


def select_equal_lengths(pairs: TextPairs, tokenizer: Tokenizer) -> TextPairs:
    """The pairs whose source has the most frequent number of tokens."""
    lengths = [len(tokenizer.encode(source)) for source, _ in pairs]
    return [pair for pair, length in zip(pairs, lengths, strict=True) if length == statistics.mode(lengths)]


def train_tokenizer(lines: Sequence[str]) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        train(count_words(lines), TokenizerSettings(vocabulary_size=VOCABULARY_SIZE), path)
        return Tokenizer.load(path)


def train_model(model: Transformer, tokenizer: Tokenizer, pairs: TextPairs, steps: int) -> None:
    """Train on batches of 40 random pairs, with Adam and a one-cycle schedule."""
    device = model.embedding.weight.device
    encoded = [tuple([*tokenizer.encode(side), tokenizer.eos_id] for side in pair) for pair in pairs]
    rng = random.Random(1)
    optimizer = torch.optim.Adam(model.train().parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4 / model.architecture.d_model, steps)
    dropout_seeds = seed_dropout(model, device)
    for step in range(steps):
        draw_seeds(dropout_seeds, 1, step)
        sample = rng.sample(encoded, 40)
        batch = Batch(
            pack_sentences([source for source, _ in sample]),
            pack_sentences([[tokenizer.decoder_start_id, *target[:-1]] for _, target in sample]),
            torch.tensor([token for _, target in sample for token in target]),
        ).to(device)
        loss_sum, _ = model(batch, smoothing=0.1)
        optimizer.zero_grad()
        (loss_sum / len(batch.labels)).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def write_model(folder: Path, model: Transformer, tokenizer: Tokenizer, decoding: DecodingSettings) -> None:
    folder.mkdir()
    ModelDescription(model.architecture, Languages("en", "de"), decoding, tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)

"""Small models and tokenizers for tests."""

from pathlib import Path

import torch
from benchmarks.toy_models import train_model
from safetensors.torch import save_file

from dragoman.corpus import demo
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.decoding.line_translator import LineTranslator
from dragoman.model.architecture import Architecture, architecture_of
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings, TokenizerSettings

PAIRS = demo.generate(300, seed=5, valid=1, test=1).train
LINES = [english for english, _ in PAIRS[:30]]


def train_tokenizer(folder: Path, algorithm: str = "bpe", vocabulary_size: int = 450) -> Tokenizer:
    path = folder / "tokenizer.model"
    words = count_words([side for pair in PAIRS for side in pair])
    train(words, TokenizerSettings(vocabulary_size=vocabulary_size, algorithm=algorithm), path)
    return Tokenizer.load(path)


def save_random_model(
    folder: Path,
    architecture: Architecture,
    tokenizer: Tokenizer,
    *,
    direction: str = "en-de",
    end_bias: float = 0.0,
    **decoding: object,
) -> Path:
    """Write a model folder with random weights. A larger `end_bias` makes translations end earlier."""
    torch.manual_seed(4)
    model = Transformer(architecture.replaced(vocabulary=tokenizer.padded_vocab_size)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.embedding.weight[tokenizer.eos_id] *= 1.5
        if end_bias:
            bias = model.decoder_norm.bias  # type: ignore[union-attr]
            model.embedding.weight[tokenizer.eos_id] += end_bias * bias / bias.norm()  # type: ignore[operator, union-attr]
    return save_model(folder, model, tokenizer, direction, **decoding)


def briefly_trained_model(tokenizer: Tokenizer) -> Transformer:
    """A model trained for some seconds: it generates words and ends its sentences."""
    torch.manual_seed(1)
    shape = {"d_model": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 128, "dropout": 0.0}
    model = Transformer(Architecture(vocabulary=tokenizer.padded_vocab_size, **shape))
    train_model(model, tokenizer, PAIRS, steps=100)
    return model


def save_model(folder: Path, model: Transformer, tokenizer: Tokenizer, direction: str, **decoding: object) -> Path:
    folder.mkdir(parents=True)
    options = DecodingSettings(**{"beam": 1, "max_length_ratio": 1.0, **decoding})
    ModelDescription(model.architecture, Languages(*direction.split("-")), options, tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)
    return folder


def small_architecture(recipe: str) -> Architecture:
    """Architecture of a recipe with a smaller width, on which no code depends."""
    full = architecture_of(recipe)
    return full.replaced(d_model=16 * full.heads, feed_forward=32 * full.heads)


def best_tokens(translator: LineTranslator, n_best: int = 1) -> list[list[int]]:
    """Tokens of the best translation of each line."""
    tokenizer = translator.tokenizer
    sources = [(*tokenizer.encode(line), tokenizer.eos_id) for line in LINES]
    hypotheses = translator.search(sources, n_best)
    return [hypotheses[source][0].tokens for source in sources]

"""Models with random weights that say various things."""

from pathlib import Path

import torch
from benchmarks.toy_models import train_model
from safetensors.torch import save_file

from dragoman.corpus import demo
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.model.architecture import Architecture, architecture_of
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings, TokenizerSettings

PAIRS = demo.generate(300, seed=5, valid=1, test=1).train
LINES = [english for english, _ in PAIRS[:30]]


def learned(folder: Path, algorithm: str) -> Tokenizer:
    path = folder / "tokenizer.model"
    words = count_words([side for pair in PAIRS for side in pair])
    train(words, TokenizerSettings(vocabulary_size=450, algorithm=algorithm), path)
    return Tokenizer.load(path)


def saved(
    folder: Path, architecture: Architecture, tokenizer: Tokenizer, *, ending: float = 0.0, **decoding: object
) -> Path:
    """A model folder with random weights, whose sentences end the sooner the larger `ending`."""
    torch.manual_seed(4)
    model = Transformer(architecture.replaced(vocabulary=tokenizer.padded_size)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.embedding.weight[tokenizer.end] *= 1.5
        if ending:
            model.embedding.weight[tokenizer.end] += ending * model.decoder_norm.bias / model.decoder_norm.bias.norm()
    return write(folder, model, tokenizer, "en-de", **decoding)


def babbler(tokenizer: Tokenizer) -> Transformer:
    """A model that has learned for some seconds: it says words, and ends its sentences."""
    torch.manual_seed(1)
    shape = {"d_model": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 128, "dropout": 0.0}
    model = Transformer(Architecture(vocabulary=tokenizer.padded_size, **shape))
    train_model(model, tokenizer, PAIRS, steps=100)
    return model


def write(folder: Path, model: Transformer, tokenizer: Tokenizer, direction: str, **decoding: object) -> Path:
    folder.mkdir(parents=True)
    options = DecodingSettings(**{"beam": 1, "max_length_ratio": 1.0, **decoding})
    ModelDescription(model.architecture, Languages(*direction.split("-")), options, tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)
    return folder


def slim(recipe: str) -> Architecture:
    """A recipe's architecture in everything but its width, which no code depends on."""
    full = architecture_of(recipe)
    return full.replaced(d_model=16 * full.heads, feed_forward=32 * full.heads)

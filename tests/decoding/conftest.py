"""A translator with random weights."""

import pytest
import torch

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.translator import Translator
from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

from ..models import train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"), vocabulary_size=500)


def byte_model(tokenizer: Tokenizer) -> Transformer:
    """A model that generates any token, line breaks included, and ends early."""
    torch.manual_seed(3)
    model = Transformer(
        Architecture(
            vocabulary=tokenizer.padded_vocab_size,
            d_model=32,
            heads=4,
            encoder_layers=1,
            decoder_layers=1,
            feed_forward=64,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        direction = model.decoder_norm.bias / model.decoder_norm.bias.norm()
        model.embedding.weight[tokenizer.eos_id] += 0.8 * direction
        model.embedding.weight *= 0.5
        for piece in ("<0x0A>", "<0x0D>", "<0x00>"):
            model.embedding.weight[tokenizer.pieces.index(piece)] += direction
    return model


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return Translator(byte_model(tokenizer), tokenizer, DecodingSettings(beam=2, max_length_ratio=0.2))

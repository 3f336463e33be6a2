"""The architecture of a model: the model settings of a recipe, and the vocabulary size of the data set."""

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dragoman.recipe import resolve
from dragoman.settings import ModelSettings

COUNTED_PAIRS = 1_000_000
"""Pairs whose attention is counted at once, which bounds the memory for a large corpus."""


class Architecture(ModelSettings):
    """Everything that determines a model's weights and their use. CTranslate2 supports all of it but qk_norm."""

    vocabulary: Annotated[int, Field(ge=1, le=10**8)]
    """Rows of the matrix that embeds source and target and projects the output."""

    @property
    def head_size(self) -> int:
        return self.d_model // self.heads

    def replaced(self, **changes: object) -> "Architecture":
        """A copy with some settings changed."""
        return Architecture(**{**self.model_dump(), **changes})


def architecture_of(recipe: str, *overrides: str) -> Architecture:
    """The model of a recipe, with the vocabulary size of its tokenizer settings."""
    settings = resolve(recipe, overrides).settings
    return Architecture(vocabulary=settings.tokenizer.vocabulary_size, **settings.model.model_dump())


def parameter_count(architecture: Architecture) -> int:
    """Parameters, computed without building the model; shared ones are counted once."""
    a = architecture
    return a.vocabulary * (a.d_model + int(a.output_bias)) + sum(_side_parameters(a))


def token_flops(architecture: Architecture) -> tuple[int, int]:
    """FLOPs of training on one source and on one target token: six for each weight that the token is multiplied by.

    Attention between tokens is left out: `attention_flops` counts it.
    """
    a = architecture
    square = a.d_model * a.d_model
    feed_forward = a.feed_forward * a.d_model * (3 if a.activation == "swiglu" else 2)
    # The key and value matrices of cross-attention are applied to source tokens.
    source = a.encoder_layers * (4 * square + feed_forward) + a.decoder_layers * 2 * square
    target = a.decoder_layers * (6 * square + feed_forward) + a.vocabulary * a.d_model
    return 6 * source, 6 * target


def attention_flops(architecture: Architecture, lengths: npt.NDArray[np.int32]) -> int:
    """FLOPs of attention's scores and weighted sums in training on pairs with these lengths, [pairs, 2].

    Forward, each pair of a query and a key takes 2 d_model FLOPs for its score and as many for its share of the
    weighted sum; backward, twice that. As usual, a causal mask does not lower the count.
    """
    a = architecture
    products = np.zeros((2, 2))
    for first in range(0, len(lengths), COUNTED_PAIRS):
        part = lengths[first : first + COUNTED_PAIRS].astype(np.float64)  # int32 is too small for such sums.
        products += part.T @ part
    (source_source, _), (target_source, target_target) = products.tolist()
    scores = a.encoder_layers * source_source + a.decoder_layers * (target_target + target_source)
    return 12 * a.d_model * round(scores)


def _side_parameters(a: Architecture) -> tuple[int, int]:
    """Trainable parameters of the encoder and of the decoder, without embeddings."""
    bias = int(a.bias)
    norm = 2 * a.d_model if a.norm == "layernorm" else a.d_model
    head_norm = 2 * a.head_size if a.qk_norm else 0
    attention = 4 * a.d_model * (a.d_model + bias) + head_norm + norm
    up_rows = a.feed_forward * (2 if a.activation == "swiglu" else 1)
    feed_forward = up_rows * (a.d_model + bias) + (a.feed_forward + bias) * a.d_model + norm
    last_norm = norm if a.norm_position == "before" else 0
    encoder = a.encoder_layers * (attention + feed_forward) + last_norm
    return encoder, a.decoder_layers * (2 * attention + feed_forward) + last_norm

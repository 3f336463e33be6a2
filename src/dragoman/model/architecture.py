"""The shape of a model: the settings of a recipe's model, and the vocabulary that the data set brings."""

from typing import Annotated

from pydantic import Field

from dragoman.recipe import resolve
from dragoman.settings import ModelSettings


class Architecture(ModelSettings):
    """All that decides which weights a model has and how they are used. CTranslate2 runs everything but qk_norm."""

    vocabulary: Annotated[int, Field(ge=1, le=10**8)]
    """Rows of the one matrix that embeds source and target and scores the output."""

    @property
    def head_size(self) -> int:
        return self.d_model // self.heads

    def replaced(self, **changes: object) -> "Architecture":
        """The same but for some settings."""
        return Architecture(**{**self.model_dump(), **changes})


def architecture_of(recipe: str, *overrides: str) -> Architecture:
    """The model of a recipe, with as many rows as its tokenizer is to have pieces."""
    settings = resolve(recipe, overrides).settings
    return Architecture(vocabulary=settings.tokenizer.vocabulary_size, **settings.model.model_dump())


def parameter_count(architecture: Architecture) -> int:
    """Trainable numbers, counted without building the model; each shared one once."""
    a = architecture
    return a.vocabulary * a.d_model + sum(_sides(a))


def token_flops(architecture: Architecture) -> tuple[int, int]:
    """Arithmetic of training on one source and on one target token: six operations for each number they meet.

    What tokens of a sentence do among each other in attention is left out: sentences are short, and it is little.
    """
    a = architecture
    source, target = _sides(a)
    # The decoder's attention reads the encoder's output: two of its matrices meet source tokens.
    memory = a.decoder_layers * 2 * a.d_model * a.d_model
    return 6 * (source + memory), 6 * (target - memory + a.vocabulary * a.d_model)


def _sides(a: Architecture) -> tuple[int, int]:
    """Trainable numbers of the encoder and of the decoder."""
    bias = int(a.bias)
    norm = 2 * a.d_model if a.norm == "layernorm" else a.d_model
    head_norm = 2 * a.head_size if a.qk_norm else 0
    attention = 4 * a.d_model * (a.d_model + bias) + head_norm + norm
    widened = a.feed_forward * (2 if a.activation == "swiglu" else 1)
    feed_forward = widened * (a.d_model + bias) + (a.feed_forward + bias) * a.d_model + norm
    encoder = a.encoder_layers * (attention + feed_forward) + norm
    return encoder, a.decoder_layers * (2 * attention + feed_forward) + norm

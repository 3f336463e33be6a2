"""The shape of a model: the settings of a recipe's model, and the vocabulary that the data set brings."""

from typing import Annotated

from pydantic import Field

from dragoman.config import Model, resolve


class Architecture(Model):
    """Everything that decides which weights a model has and how they are used. CTranslate2 can run all of it."""

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
    return Architecture(vocabulary=settings.tokenizer.vocabulary, **settings.model.model_dump())


def parameter_count(architecture: Architecture) -> int:
    """Trainable numbers, counted without building the model; each shared one once."""
    a = architecture
    bias = int(a.bias)
    norm = 2 * a.d_model if a.norm == "layernorm" else a.d_model
    head_norm = 2 * a.head_size if a.qk_norm else 0
    attention = 4 * a.d_model * (a.d_model + bias) + head_norm + norm
    widened = a.feed_forward * (2 if a.activation == "swiglu" else 1)
    feed_forward = widened * (a.d_model + bias) + (a.feed_forward + bias) * a.d_model + norm
    encoder = a.encoder_layers * (attention + feed_forward) + norm
    decoder = a.decoder_layers * (2 * attention + feed_forward) + norm
    return a.vocabulary * a.d_model + encoder + decoder

"""Length limits and penalties of a search, the same on torch and in CTranslate2."""

from dragoman.errors import DragomanError
from dragoman.settings import DecodingSettings

EXTRA_LENGTH = 20
"""Tokens that a translation may have beyond the multiple of its source length: short sentences need them most."""


def max_length(source_length: int, max_length_ratio: float) -> int:
    """Most tokens, with the end token, of a translation."""
    return int(max_length_ratio * source_length) + EXTRA_LENGTH


def length_penalty(length: float, alpha: float) -> float:
    """Divisor of the log-probability of `length` tokens, with the end token."""
    return float(((5 + length) / 6) ** alpha)


def check_n_best(n_best: int, settings: DecodingSettings) -> None:
    if not 1 <= n_best <= settings.beam:
        raise DragomanError(
            f"{n_best} translations were requested, but decoding.beam = {settings.beam}: "
            f"request 1 to {settings.beam}, or raise decoding.beam."
        )

"""Tokens with a meaning to a search: start, end, and those that no translation may contain."""

from dataclasses import dataclass

from dragoman.corpus.tokenizer import Tokenizer


@dataclass(frozen=True)
class SpecialTokens:
    decoder_start_id: int
    """First input of the decoder."""
    eos_id: int
    """End-of-sentence token."""
    forbidden: tuple[int, ...] = ()
    """Tokens that are never generated: padding, unknown, start, and rows that only round up the vocabulary."""
    target_prefix: tuple[int, ...] = ()
    """Tokens after the start with which each translation begins."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, vocabulary: int) -> "SpecialTokens":
        """The special tokens of a tokenizer whose model has `vocabulary` rows."""
        forbidden = {*tokenizer.special_ids, *range(tokenizer.vocab_size, vocabulary)} - {tokenizer.eos_id}
        return cls(tokenizer.decoder_start_id, tokenizer.eos_id, tuple(sorted(forbidden)), tokenizer.target_prefix)

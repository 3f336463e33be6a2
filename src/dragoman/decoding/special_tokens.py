"""Tokens with a meaning to a search: start, end, and those that no translation may contain."""

from dataclasses import dataclass

import sentencepiece

from dragoman.corpus.tokenizer import Tokenizer


@dataclass(frozen=True)
class SpecialTokens:
    decoder_start_id: int
    """First input of the decoder."""
    eos_id: int
    """End-of-sentence token."""
    forbidden: tuple[int, ...] = ()
    """Tokens that are never generated: padding, unknown, start, and rows that only round up the vocabulary."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, vocabulary: int) -> "SpecialTokens":
        """The special tokens of a tokenizer whose model has `vocabulary` rows."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
        without_text = [
            token
            for token in range(tokenizer.vocab_size)
            if processor.is_control(token) or processor.is_unknown(token) or processor.is_unused(token)
        ]
        forbidden = {*without_text, *range(tokenizer.vocab_size, vocabulary)} - {tokenizer.eos_id}
        return cls(tokenizer.decoder_start_id, tokenizer.eos_id, tuple(sorted(forbidden)))

"""The special tokens of a tokenizer."""

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.special_tokens import SpecialTokens


def test_all_tokens_without_text_are_forbidden(tokenizer: Tokenizer) -> None:
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, tokenizer.padded_size)
    assert (special_tokens.start, special_tokens.end) == (2, 3)
    assert special_tokens.forbidden == (0, 1, 2, *range(tokenizer.size, tokenizer.padded_size))

"""The special tokens of a tokenizer."""

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.special_tokens import SpecialTokens


def test_all_tokens_without_text_are_forbidden(tokenizer: Tokenizer) -> None:
    special_tokens = SpecialTokens.from_tokenizer(tokenizer, tokenizer.padded_vocab_size)
    assert (special_tokens.decoder_start_id, special_tokens.eos_id) == (2, 3)
    assert special_tokens.forbidden == (0, 1, 2, *range(tokenizer.vocab_size, tokenizer.padded_vocab_size))

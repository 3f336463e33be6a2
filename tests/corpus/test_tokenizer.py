from collections import Counter

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.corpus import demo, tokenizer
from dragoman.corpus.tokenizer import CachedEncoder, Tokenizer, count_words, merge_word_counts, train
from dragoman.errors import DragomanError
from dragoman.settings import TokenizerSettings

LINES = [side for pair in demo.generate(3000, seed=5, valid=1, test=1).train for side in pair]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def trained(request, tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train(count_words(LINES), TokenizerSettings(algorithm=request.param, vocabulary_size=800), path)
    return Tokenizer.load(path)


def test_decoding_restores_the_text(trained):
    assert all(trained.decode(trained.encode(line)) == line for line in LINES[:500])


def test_unseen_characters_are_encoded_as_bytes(trained):
    text = "日本語 und Ωμέγα 🐪"
    assert tokenizer.UNK_ID not in trained.encode(text)
    assert trained.decode(trained.encode(text)) == text


def test_special_tokens_have_fixed_ids_and_the_padded_size_is_a_multiple_of_64(trained):
    assert (trained.decoder_start_id, trained.eos_id) == (tokenizer.BOS_ID, tokenizer.EOS_ID)
    assert trained.vocab_size == 800
    assert trained.padded_vocab_size == 832


def test_decoding_skips_special_tokens_and_padding_rows(trained):
    tokens = trained.encode("Der Hund")
    assert trained.decode(
        [trained.decoder_start_id, *tokens, trained.eos_id, trained.padded_vocab_size - 1]
    ) == trained.decode(tokens)


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8")))
def test_encoding_word_by_word_gives_the_tokens_of_the_sentence(trained, text):
    line = " ".join(text.split())
    tokens, lengths = CachedEncoder(trained).encode(f"{line}\tDer Hund".encode())
    sides = [[*trained.encode(side), trained.eos_id] for side in (line, "Der Hund")]
    assert tokens.tolist() == sides[0] + sides[1]
    assert lengths.tolist() == [[len(sides[0]), len(sides[1])]]


def test_word_counts_give_the_same_pieces_as_sentences(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "lines.txt"), model_prefix=str(tmp_path / "plain"), vocab_size=800, model_type="bpe",
        byte_fallback=True, character_coverage=0.9998, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    train(count_words(LINES), TokenizerSettings(vocabulary_size=800), tmp_path / "counted.model")
    pieces = [Tokenizer.load(tmp_path / name).pieces for name in ("plain.model", "counted.model")]
    assert pieces[0] == pieces[1]


def test_a_model_without_byte_pieces_is_encoded_sentence_by_sentence(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "lines.txt"), model_prefix=str(tmp_path / "plain"), vocab_size=500, minloglevel=2
    )
    given_model = Tokenizer.load(tmp_path / "plain.model")
    assert not given_model.encodes_word_by_word
    sides = ["Я 日 本 dog", "dog 日"]
    tokens, lengths = CachedEncoder(given_model).encode("\t".join(sides).encode())
    encoded = [[*given_model.encode(side), given_model.eos_id] for side in sides]
    assert tokens.tolist() == encoded[0] + encoded[1]
    assert lengths.tolist() == [[len(encoded[0]), len(encoded[1])]]


def test_the_rarest_words_are_dropped_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(tokenizer, "MAX_WORDS", 3)
    total: Counter[str] = Counter()
    merge_word_counts(total, Counter({"a": 9, "b": 5, "c": 1, "d": 1, "e": 3}))
    assert total == {"a": 9, "b": 5, "e": 3}


def test_too_little_text_is_reported_with_a_remedy(tmp_path):
    with pytest.raises(DragomanError, match=r"change tokenizer\.vocabulary_size"):
        train(Counter(), TokenizerSettings(), tmp_path / "tokenizer.model")
    assert not (tmp_path / "tokenizer.model").exists()


def test_a_file_that_is_not_a_tokenizer_is_rejected(tmp_path):
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    with pytest.raises(DragomanError, match="not a SentencePiece model"):
        Tokenizer.load(tmp_path / "bad.model")


def test_a_full_cache_of_words_starts_anew(trained, monkeypatch):
    monkeypatch.setattr(tokenizer, "MAX_CACHED_WORDS", 2)
    encoder = CachedEncoder(trained)
    for text in (b"Der Hund\tthe dog", b"the\tDer", b"dog the\tHund Der"):
        tokens, _ = encoder.encode(text)
        assert tokens.tolist() == CachedEncoder(trained).encode(text)[0].tolist()


def test_no_text_has_no_tokens(trained):
    tokens, lengths = CachedEncoder(trained).encode(b"")
    assert len(tokens) == 0
    assert lengths.shape == (0, 2)

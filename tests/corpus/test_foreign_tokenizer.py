"""Tokenizers of imported models: the same tokens as in transformers, in one file that survives copies."""

import pickle
from functools import lru_cache
from pathlib import Path

import pytest
from benchmarks.fine_tuning import load_peer
from benchmarks.foreign_models import make_m2m100, make_marian, make_nllb
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.corpus.foreign_tokenizer import ForeignTokenizer
from dragoman.corpus.huggingface_folder import split_direction
from dragoman.corpus.model_languages import match_languages, other_direction
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import CachedEncoder, Tokenizer
from dragoman.decoding.model_choice import find_tokenizer
from dragoman.errors import DragomanError

from ..models import PAIRS

EN_DE = Languages("en", "de")
_peer = lru_cache(load_peer)
MAKERS = {"marian": make_marian, "m2m100": make_m2m100, "nllb": make_nllb}
# Without the marks that transformers takes for special tokens, and without characters that its tokenizers strip.
WORDS = st.text("abcdefghijklmnopqrstuvwxyzäöüßABCDEFG.,?!é漢字0123456789'-", min_size=1, max_size=8)


@pytest.fixture(scope="module", params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param](tmp_path_factory.mktemp("foreign") / request.param, PAIRS)


def test_a_tokenizer_is_one_file_that_is_read_and_copied_as_it_is(folder: Path, tmp_path: Path) -> None:
    tokenizer = find_tokenizer(folder, EN_DE)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    for again in (Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))):
        assert isinstance(again, ForeignTokenizer)
        assert again.encodes_like(tokenizer)
        assert again.encode("The teacher reads.") == tokenizer.encode("The teacher reads.")
    assert find_tokenizer(folder, EN_DE).model == tokenizer.model
    path.write_bytes(tokenizer.model[: len(tokenizer.model) // 2])
    with pytest.raises(DragomanError, match="The tokenizer is damaged"):
        Tokenizer.load(path)


@settings(max_examples=50)
@given(words=st.lists(WORDS, min_size=1, max_size=6))
def test_tokens_and_text_are_those_of_transformers(folder: Path, words: list[str]) -> None:
    tokenizer, (_, peer) = find_tokenizer(folder, EN_DE), _peer(folder)
    text = " ".join(words)
    source, target = peer(text).input_ids, peer(text_target=text).input_ids
    assert [*tokenizer.source_prefix, *tokenizer.encode(text), tokenizer.eos_id] == source
    assert [*tokenizer.target_prefix, *tokenizer.encode(text, "target"), tokenizer.eos_id] == target
    assert [token for token, _, _ in tokenizer.encode_with_spans(text, "target")] == tokenizer.encode(text, "target")


def test_both_sides_of_a_pair_have_their_prefix_and_end(folder: Path) -> None:
    tokenizer = find_tokenizer(folder, EN_DE)
    (english, german), *_ = PAIRS
    tokens, lengths = CachedEncoder(tokenizer).encode(f"{english}\t{german}".encode())
    source = [*tokenizer.source_prefix, *tokenizer.encode(english), tokenizer.eos_id]
    target = [*tokenizer.target_prefix, *tokenizer.encode(german, "target"), tokenizer.eos_id]
    assert tokens.tolist() == [*source, *target]
    assert lengths.tolist() == [[len(source), len(target)]]


def test_codes_of_languages_are_matched() -> None:
    nllb = ["deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "arb_Arab"]
    assert match_languages("de", nllb) == ["deu_Latn"]
    assert match_languages("deu_latn", nllb) == ["deu_Latn"]
    assert match_languages("ar-EG", nllb) == ["arb_Arab"]
    assert match_languages("zh", nllb) == ["zho_Hans", "zho_Hant"]
    assert match_languages("zh-Hant", nllb) == ["zho_Hant"]
    assert match_languages("en-GB", ["en", "de"]) == ["en"]
    assert match_languages("xx", nllb) == []


CODES = [("en", "eng", "en_XX", "eng_Latn", "en-GB"), ("de", "deu", "deu_Latn"), ("nb", "nob_Latn"), ("zh", "zho")]


@given(st.lists(st.sampled_from(CODES), min_size=4, max_size=4), st.data())
def test_directions_are_compared_by_languages_and_not_by_codes(languages: list[tuple[str, ...]], data: st.DataObject):
    codes = [data.draw(st.sampled_from(same)) for same in languages]
    differ = other_direction(Languages(*codes[:2]), Languages(*codes[2:]))
    assert differ == (languages[:2] != languages[2:])


@pytest.mark.parametrize("group", ["ROMANCE", "mul", "gmw", "deu_eng_fra", "xx", "ara"])
def test_a_group_of_languages_may_include_any(group: str) -> None:
    assert not other_direction(Languages(group, "en"), Languages("fr", "en"))
    assert other_direction(Languages(group, "en"), Languages("fr", "de"))


def test_a_tokenizer_for_another_direction_than_the_data_is_refused(folder: Path) -> None:
    with pytest.raises(DragomanError, match=r"en-fr in front .* is not the direction of the data, en-de: leave it out"):
        find_tokenizer(Path(f"en-fr={folder}"), EN_DE)
    assert find_tokenizer(Path(f"en-de={folder}"), Languages("en-US", "de"))
    if folder.name == "marian":
        with pytest.raises(DragomanError, match="the model translates en-de, not de-en: use one of that direction"):
            find_tokenizer(folder, EN_DE.reversed)
    else:
        assert find_tokenizer(folder, EN_DE.reversed)


def test_a_direction_stands_before_a_folder_that_has_none_in_its_name(tmp_path: Path) -> None:
    assert split_direction(Path("en-de=models/nllb")) == (EN_DE, Path("models/nllb"))
    assert split_direction(Path("en-GB:pt-BR=/models/nllb")) == (Languages("en-GB", "pt-BR"), Path("/models/nllb"))
    assert split_direction(Path("models/nllb")) == (None, Path("models/nllb"))
    named = tmp_path / "en-de=nllb"
    named.mkdir()
    assert split_direction(named) == (None, named)

"""The search for terms: they come out, in their place or inflected, and everything else stays as it was."""

import pytest

import dragoman
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.glossary import Glossary, Term
from dragoman.decoding.glossary_search import GlossaryTranslator, check_terms
from dragoman.exporting.exporter import export

from ..models import LINES, briefly_trained_model, save_model, train_tokenizer


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> CTranslate2Translator:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(folder)
    model = save_model(folder / "model", briefly_trained_model(tokenizer), tokenizer, "en-de", beam=3)
    loaded = dragoman.load(export(model, folder / "exported", "ctranslate2", "float32"), "cpu")
    assert isinstance(loaded, CTranslate2Translator)
    return loaded


def test_terms_come_out_even_from_a_model_that_translates_badly(translator: CTranslate2Translator) -> None:
    words = {word.strip(".,?!").lower() for line in LINES[:12] for word in line.split() if word[:1].islower()}
    glossary = Glossary({word: f"Xylo{index}phon" for index, word in enumerate(sorted(words)[:8])}, "en")
    with_terms = GlossaryTranslator(translator, glossary)
    translations = with_terms.translate(LINES[:12])
    checks = [check_terms(line, text, glossary) for line, text in zip(LINES[:12], translations, strict=True)]
    assert sum(len(check.applied) for check in checks) == with_terms.applied.total() > 5
    assert with_terms.missing.total() == 0


def test_a_glossary_changes_only_lines_with_wrong_terms(translator: CTranslate2Translator) -> None:
    plain = translator.translate(LINES)
    assert GlossaryTranslator(translator, Glossary({"zebra": "Zebra"}, "en")).translate(LINES) == plain
    word = next(word for word in plain[0].split() if len(word) > 4).strip(".,?!")
    already_right = Glossary({LINES[0].split()[1].strip(".,?!"): word}, "en")
    assert GlossaryTranslator(translator, already_right).translate(LINES[:1]) == plain[:1]


def test_the_check_names_applied_and_missing_terms() -> None:
    glossary = Glossary({"dog": "Rüde", "cat": "Katze"}, "en")
    check = check_terms("A dog and a cat and a dog", "Ein Rüde und ein Tier", glossary)
    assert check.applied == [Term("dog", "Rüde")]
    assert check.missing == [Term("cat", "Katze"), Term("dog", "Rüde")]


def test_an_empty_translation_gets_the_term(translator: CTranslate2Translator) -> None:
    glossary = Glossary({"qqq": "Quark"}, "en")
    [text] = GlossaryTranslator(translator, glossary).translate(["qqq"])
    assert "Quark" in text


def test_prefixes_are_kept_and_scored(translator: CTranslate2Translator) -> None:
    tokenizer = translator.tokenizer
    source = (*tokenizer.encode(LINES[0]), tokenizer.eos_id)
    prefix = tokenizer.encode("Der Quark")
    [result] = translator.search_from([(source, prefix)])
    assert result.tokens[: len(prefix)] == prefix
    [best] = translator.search([source], 1)[source]
    [again] = translator.search_from([(source, best.tokens[:2])])
    assert again.score == pytest.approx(best.score, abs=0.2) or again.score > best.score

"""Scores of given pairs: those of torch and of CTranslate2 agree, and they are those of their definition."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding import pair_scoring
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.pair_scoring import ModelPairScorer, cross_entropies, load_scorer, neighbours
from dragoman.decoding.translator import Translator
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import export
from dragoman.settings import DecodingSettings

from ..models import save_model
from .conftest import byte_model

PAIRS = [
    ("The teacher reads a book.", "Der Lehrer liest ein Buch."),
    ("Good morning.", "Guten Morgen."),
    ("The old ship leaves the harbour at noon.", "Das alte Schiff fährt am Mittag ab."),
    ("No.", "Nein."),
]


def test_scores_do_not_depend_on_the_batches(translator: Translator) -> None:
    together = cross_entropies(translator, PAIRS)
    alone = np.concatenate([cross_entropies(translator, [pair]) for pair in PAIRS])
    assert together == pytest.approx(alone, rel=1e-5)
    small = Translator(translator.model, translator.tokenizer, DecodingSettings(batch_tokens=16))
    assert cross_entropies(small, PAIRS) == pytest.approx(alone, rel=1e-5)


def test_scores_are_the_mean_log_probabilities_that_training_computes(translator: Translator) -> None:
    tokenizer = translator.tokenizer
    source, target = (tokenizer.encode(side) for side in PAIRS[2])
    batch = Batch(
        pack_sentences([[*source, tokenizer.eos_id]]),
        pack_sentences([[tokenizer.decoder_start_id, *target]]),
        torch.tensor([*target, tokenizer.eos_id]),
    )
    with torch.inference_mode():
        _, nll_sum = translator.model(batch)
    assert cross_entropies(translator, PAIRS[2:3])[0] == pytest.approx(float(nll_sum) / (len(target) + 1), rel=1e-5)


def test_an_export_gives_the_same_scores(translator: Translator, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", translator.model, translator.tokenizer, "en-de")
    export(model, tmp_path / "export", "ctranslate2", "float32")
    theirs = CTranslate2Translator.load(tmp_path / "export", "cpu")
    # Rows that only round up the vocabulary are not exported, and have some probability in a random model.
    assert cross_entropies(theirs, PAIRS) == pytest.approx(cross_entropies(translator, PAIRS), rel=0.01)


def test_scores_are_what_the_other_side_saves_and_less_where_two_directions_disagree(tokenizer: Tokenizer) -> None:
    forward = Translator(byte_model(tokenizer), tokenizer, DecodingSettings())
    model = byte_model(tokenizer)
    with torch.no_grad():
        model.embedding.weight *= 0.5
    backward = Translator(model, tokenizer, DecodingSettings())
    there, back = cross_entropies(forward, PAIRS), cross_entropies(backward, [(b, a) for a, b in PAIRS])
    gain, back_gain = gains(forward, PAIRS), gains(backward, [(b, a) for a, b in PAIRS])
    scorer = ModelPairScorer(forward, backward)
    assert scorer.rule == "agreement"
    assert scorer.score(PAIRS) == pytest.approx(np.minimum(gain, back_gain) - abs(there - back) / 4, abs=1e-5)
    assert ModelPairScorer(forward).rule == "score"
    assert ModelPairScorer(forward).score(PAIRS) == pytest.approx(gain, abs=1e-5)


def gains(translator: Translator, pairs: list[tuple[str, str]]) -> np.ndarray:
    """The mean of what a source saves at all tokens of its target, and of the half at which it saves less."""
    other, found = neighbours([source for source, _ in pairs]), []
    for source, target in pairs:
        own, others = token_log_probabilities(translator, [(source, target), (other[source], target)])
        saved, middle = own - others, len(own) // 2
        found.append((saved.mean() + min(saved[:middle].mean(), saved[middle:].mean())) / 2)
    return np.array(found)


def token_log_probabilities(translator: Translator, pairs: list[tuple[str, str]]) -> list[np.ndarray]:
    encode, eos_id = translator.tokenizer.encode, translator.tokenizer.eos_id
    encoded = [((*encode(source), eos_id), encode(target, "target")) for source, target in pairs]
    return list(map(np.array, translator.log_probabilities(encoded)))


def test_the_neighbour_of_a_text_is_another_one_of_similar_length() -> None:
    assert neighbours(["a", "bb", "bb", "cccc"]) == {"a": "bb", "bb": "cccc", "cccc": "bb"}
    assert neighbours(["a", "a"]) == {"a": "a"}
    assert neighbours([]) == {}


def test_long_sides_are_scored_by_their_beginning(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_scoring, "MAX_SIDE_TOKENS", 8)
    long = [(f"{PAIRS[2][0]} {'and so on ' * 50}", PAIRS[2][1] + " und so weiter" * 50)]
    longer = [(f"{long[0][0]} and on", f"{long[0][1]} und so fort")]
    assert cross_entropies(translator, long) == pytest.approx(cross_entropies(translator, longer))


def test_models_of_the_wrong_direction_are_refused_together(translator: Translator, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", translator.model, translator.tokenizer, "en-fr")
    with pytest.raises(
        DragomanError, match=r"(?s)--score-with .* give a model from en to de.*--score-back-with"
    ) as error:
        load_scorer(model, model, Languages("en", "de"))
    assert "from de to en" in str(error.value)
    assert load_scorer(model, None, Languages("en", "fr")).identity


def test_a_pair_without_another_one_to_compare_it_with_is_never_dropped(translator: Translator) -> None:
    assert ModelPairScorer(translator).score(PAIRS[:1]) == [np.inf]
    assert list(ModelPairScorer(translator, translator).score([PAIRS[0], PAIRS[0]])) == [np.inf, np.inf]


def test_no_pairs_have_no_scores(translator: Translator) -> None:
    assert len(ModelPairScorer(translator).score([])) == 0

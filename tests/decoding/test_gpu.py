"""Scores of given pairs on a GPU. CTranslate2 is not needed for them."""

import pytest

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.pair_scoring import cross_entropies
from dragoman.decoding.translator import Translator
from dragoman.settings import DecodingSettings

from ..models import PAIRS
from .conftest import byte_model

pytestmark = pytest.mark.gpu


def test_scores_on_a_gpu_are_those_on_a_cpu(translator: Translator, tokenizer: Tokenizer) -> None:
    on_gpu = Translator(byte_model(tokenizer).to("cuda"), tokenizer, DecodingSettings())
    assert cross_entropies(on_gpu, PAIRS) == pytest.approx(cross_entropies(translator, PAIRS), rel=0.03)

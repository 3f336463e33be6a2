import numpy as np
import pytest

from dragoman.config import resolve
from dragoman.launch import tryout
from dragoman.launch.tryout import LONGEST, Imagined, try_out
from dragoman.model.architecture import Architecture, parameter_count

from ..small import TINY


def test_a_machine_is_tried_with_the_model_of_the_recipe(monkeypatch):
    monkeypatch.setattr(tryout, "LONG_S", 0.0)
    settings = resolve(None, [*TINY, "tokenizer.vocabulary=400"]).settings
    found = try_out(settings)
    assert found.parameters == parameter_count(Architecture(vocabulary=400, **settings.model.model_dump()))
    assert found.tokens_per_s > 0
    assert found.update_s > 0
    assert found.device == "CPU" or found.gpus


def test_imagined_sentences_are_as_long_as_they_say():
    imagined = Imagined(1000)
    lengths = imagined.lengths()
    assert lengths.max() <= LONGEST
    assert lengths.mean() == pytest.approx(25, abs=3)
    chosen = np.array([5, 7, 11])
    source, target = imagined.gather(chosen)
    assert [len(source), len(target)] == lengths[chosen].sum(axis=0).tolist()
    assert max(source.max(), target.max()) < 1000

"""The small models that benchmarks train for themselves."""

from pathlib import Path

from benchmarks.toy_models import make_trained_model

from dragoman.decoding.model_choice import find_model


def test_a_model_is_trained_and_written(tmp_path: Path) -> None:
    [(source, target)] = make_trained_model(tmp_path / "model", steps=2)
    assert source != target
    assert find_model(tmp_path / "model") == tmp_path / "model"

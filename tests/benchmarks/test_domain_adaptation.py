"""The run from scratch that is compared with an adapted model."""

from pathlib import Path

import pytest
from benchmarks.domain_adaptation import architecture_overrides

from dragoman.recipe import resolve
from dragoman.training.start_model import DROPOUTS

from ..models import save_random_model, small_architecture, train_tokenizer


@pytest.mark.parametrize("recipe", ["tiny", "modern"])
def test_a_run_from_scratch_gets_the_architecture_of_the_model(tmp_path: Path, recipe: str) -> None:
    architecture = small_architecture(recipe)
    model = save_random_model(tmp_path / "model", architecture, train_tokenizer(tmp_path))
    found = resolve("small", architecture_overrides(model)).settings.model
    assert found.model_dump(exclude=DROPOUTS) == architecture.model_dump(exclude={"vocabulary", *DROPOUTS})

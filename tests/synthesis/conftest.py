"""A small model, and a text with the lines that real texts have."""

from pathlib import Path

import pytest

from ..shared_folder import shared_folder
from ..synthesis_models import LINES, make_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "synthesis-models", make_models)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_bytes("".join(f"{line}\n" for line in LINES).encode())
    return path

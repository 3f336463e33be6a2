"""A small model for CTranslate2, and a text with the lines that real texts have."""

from pathlib import Path

import pytest

from dragoman.exporting.exporter import export

from ..models import PAIRS, save_random_model, small_architecture, train_tokenizer
from ..shared_folder import shared_folder

LINES = [english for english, _ in PAIRS[:90]]
LINES[10] = ""
LINES[20] = LINES[21]
LINES[30] = "  two   spaces\tand a tab "
LINES[40] = "a\u2028separator and \x85 another"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model for torch, and its export."""

    def make(folder: Path) -> None:
        tokenizer = train_tokenizer(folder)
        model = save_random_model(folder / "torch", small_architecture("tiny"), tokenizer, end_bias=0.5, beam=2)
        export(model, folder / "int8", "ctranslate2")

    return shared_folder(tmp_path_factory, "synthesis-models", make)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_bytes("".join(f"{line}\n" for line in LINES).encode())
    return path

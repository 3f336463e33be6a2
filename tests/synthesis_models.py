"""Small models and lines for tests of synthesis."""

from pathlib import Path

from dragoman.exporting.exporter import export

from .models import PAIRS, save_random_model, small_architecture, train_tokenizer

LINES = [english for english, _ in PAIRS[:90]]
MIDDLE_SCORE = -0.92
"""Both models together give about half of the translations a lower score."""
LINES[10] = ""
LINES[20] = LINES[21]
LINES[30] = "  two   spaces\tand a tab "
LINES[40] = "a\u2028separator and \x85 another"


def make_models(folder: Path) -> None:
    """A model for torch, its export, and a model of the other direction."""
    tokenizer = train_tokenizer(folder)
    model = save_random_model(folder / "torch", small_architecture("tiny"), tokenizer, end_bias=0.5, beam=2)
    export(model, folder / "int8", "ctranslate2")
    save_random_model(folder / "backward", small_architecture("tiny"), tokenizer, direction="de-en")

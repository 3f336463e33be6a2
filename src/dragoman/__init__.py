"""Train translation models across whatever machines you have, and know what limits the run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.decoding.line_translator import LineTranslator

__version__ = "0.1.0"


def load(path: Path | str, device: str | None = None, **decoding: Any) -> "LineTranslator":
    """A translator from the folder of a run, a checkpoint or an export: `dragoman.load("run").translate(["Hello."])`.

    Without a device, a GPU is used if there is one. `decoding` changes settings such as `beam=8`.
    """
    from dragoman.decoding.translator_loading import load as load_translator

    return load_translator(path, device, **decoding)

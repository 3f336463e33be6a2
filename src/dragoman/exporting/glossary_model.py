"""Models that translate with a glossary. Terms are searched for by CTranslate2, so other models are exported first."""

import tempfile
from pathlib import Path
from typing import Any

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, is_ctranslate2_folder
from dragoman.decoding.glossary import read_glossary
from dragoman.decoding.glossary_search import GlossaryTranslator
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.translator_loading import load


def load_with_glossary(model: Path, glossary: Path, decoding: dict[str, Any]) -> GlossaryTranslator:
    """Load a model with a glossary."""
    found = find_model(model)
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        if not is_ctranslate2_folder(found):
            from dragoman.exporting.exporter import export  # Needs torch, which exports for CTranslate2 do not.

            found = export(found, Path(folder) / "model", "ctranslate2", "float32")
        translator = load(found, **decoding)
    assert isinstance(translator, CTranslate2Translator)
    assert translator.languages is not None
    return GlossaryTranslator(translator, read_glossary(glossary, translator.languages))

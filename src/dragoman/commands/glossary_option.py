"""The option --glossary of `translate` and `serve`: its loading and its report."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.commands.typer_app import escape, open_console
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.glossary import GlossaryFile
    from dragoman.decoding.glossary_search import GlossaryTranslator

LISTED_TERMS = 5


def load_with_glossary(model: Path, glossary: Path, decoding: dict[str, Any]) -> "GlossaryTranslator":
    """Load a model with a glossary. Terms are searched for by CTranslate2: other models are exported first."""
    from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, is_ctranslate2_folder
    from dragoman.decoding.glossary import read_glossary
    from dragoman.decoding.glossary_search import GlossaryTranslator
    from dragoman.decoding.model_choice import find_model
    from dragoman.decoding.translator import load
    from dragoman.exporting.exporter import export

    found = find_model(model)
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        exported = (
            found if is_ctranslate2_folder(found) else export(found, Path(folder) / "model", "ctranslate2", "float32")
        )
        translator = load(exported, **decoding)
    assert isinstance(translator, CTranslate2Translator)
    assert translator.languages is not None
    return GlossaryTranslator(translator, read_glossary(glossary, translator.languages))


def show_terms(translator: "GlossaryTranslator") -> None:
    """Print how many terms of the text were applied, and which were not."""
    applied, missing = translator.applied.total(), translator.missing.total()
    message = f"Glossary: {applied} of {applied + missing} terms in the text were applied."
    if missing:
        terms = [f"{term.source} ({term.target}) {times} times" for term, times in translator.missing.most_common()]
        message += f" Not applied: {', '.join(terms[:LISTED_TERMS])}{', ...' if len(terms) > LISTED_TERMS else ''}."
    open_console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)


def parse_glossary(text: str, models: int) -> "GlossaryFile":
    """A glossary of a server: FILE, or en-de=FILE if it has several models."""
    from dragoman.corpus.sources import Languages
    from dragoman.decoding.glossary import GlossaryFile

    direction, equals, path = text.partition("=")
    codes = direction.split("-")
    if Path(text).exists() or not equals:
        if models > 1:
            raise DragomanError(
                f"--glossary {text} is for one of several models: write its direction, as en-de={text}."
            )
        return GlossaryFile(Path(text))
    if len(codes) != 2 or not all(codes):
        raise DragomanError(f"--glossary {text} has no direction: write it as en-de={path}.")
    return GlossaryFile(Path(path), Languages(*codes))

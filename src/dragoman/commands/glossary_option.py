"""The option --glossary of `translate` and `serve`: its parsing and its report."""

from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.commands.typer_app import escape, open_console
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.glossary import GlossaryFile
    from dragoman.decoding.glossary_search import GlossaryTranslator

LISTED_TERMS = 5


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

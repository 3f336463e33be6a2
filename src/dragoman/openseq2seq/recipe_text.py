"""A converted configuration as a recipe in TOML, with everything that is no setting in comments."""

from collections.abc import Iterator
from typing import Any

from dragoman.openseq2seq.conversion import Conversion, Converted
from dragoman.openseq2seq.python_literals import Symbol
from dragoman.recipe import show_value

MAX_SHOWN = 80


def as_recipe(conversion: Conversion) -> str:
    """The text of the recipe."""
    return "\n".join(_lines(conversion)) + "\n"


def show_source_value(value: Any) -> str:
    """A value as Python writes it, shortened."""
    if isinstance(value, Symbol):
        text = value.text
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(show_source_value(item) for item in value[:MAX_SHOWN]) + "]"
    else:
        text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def printable(text: str) -> str:
    """Text on one line, without characters that a terminal would act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _lines(conversion: Conversion) -> Iterator[str]:
    mapped, absent = len(conversion.mapped), len(conversion.without_counterpart)
    yield _comment(f"Converted from {conversion.source.name}, a configuration of OpenSeq2Seq.")
    yield _comment(f"{mapped} of its {mapped + absent} settings have a counterpart; the others are listed at the end.")
    yield from (_comment(problem) for problem in conversion.problems())
    yield "#"
    for command in conversion.commands:
        yield _comment(f"    {command}")
    section = ""
    for key, value in conversion.settings().items():
        head, _, name = key.partition(".")
        if head != section:
            section = head
            yield f"\n[{section}]"
        origins = [one for one in conversion.converted if key in one.settings]
        for note in sorted({one.note for one in origins if one.note}):
            yield _comment(note)
        paths = ", ".join(one.leaf.path for one in origins)
        yield f"{name} = {show_value(value)}  {_comment(paths)}"
    yield from _listing("Counterparts that are no settings:", [one for one in conversion.mapped if not one.settings])
    yield from _listing("Without a counterpart:", conversion.without_counterpart)
    if conversion.skipped:
        yield f"\n{_comment('Statements that were not evaluated; check what they change:')}"
        yield from (_comment(f"    {statement}") for statement in conversion.skipped)


def _listing(title: str, converted: list[Converted]) -> Iterator[str]:
    if converted:
        yield f"\n{_comment(title)}"
    for one in converted:
        yield _comment(f"    {one.leaf.path} = {show_source_value(one.leaf.value)}: {one.note}")


def _comment(text: str) -> str:
    return f"# {printable(text)}"

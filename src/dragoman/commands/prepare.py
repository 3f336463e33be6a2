"""`dragoman prepare`: text to a data set."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.commands.typer_app import (
    InterruptedByUserError,
    escape,
    open_console,
)
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.corpus.catalog import Corpus

CORPUS_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(/[A-Za-z-]+)?|.+\.toml(/[A-Za-z-]+)?")


def prepare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="A corpus of the catalog, a corpus description (.toml), files, or - ; and key=value.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the data set to make.")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="Validation set: a file, or two as A,B.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Test set: a file, or two as A,B.")] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Direction, such as en-de, where names do not tell.")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="Format of the files, where names do not tell.")
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option("--from", help="Folder with the downloads, used instead of the network.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A SentencePiece .model to use instead of training one.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe whose corpus settings to use.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes; by default one for each core.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data set that was made otherwise.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the corpora of the catalog.")] = False,
) -> None:
    """Turn text into a cleaned, tokenized, memory-mapped data set.

    The same inputs and settings give the same bytes. An interrupted run goes on where it was.

    **Examples**

        dragoman prepare demo --out data/demo

        dragoman prepare wmt16-en-de --out data/wmt16

        dragoman prepare news.en.xz news.de.xz --valid dev.en,dev.de --out data/news

        dragoman prepare own.tmx crawl.tsv@0.5 -l en-de --out data/own cleaning.max_words=100
    """
    from dragoman.corpus.dataset import DataSet
    from dragoman.corpus.dataset_summary import show_splits
    from dragoman.corpus.preparation import prepare as make
    from dragoman.recipe import resolve
    from dragoman.terminal import progress_bars

    if listing:
        _list_corpora()
        return
    words = inputs or []
    overrides = [word for word in words if "=" in word and not Path(word).exists()]
    named = [word for word in words if word not in overrides]
    settings = resolve(recipe, overrides).settings
    if not named or out is None:
        raise DragomanError("prepare needs a corpus and --out: for example `dragoman prepare demo --out data/demo`.")
    try:
        with progress_bars(open_console(stderr=True)) as progress:
            corpus = find_corpus(named, valid or [], test or [], languages, file_format, mirror, progress)
            count = workers or len(os.sched_getaffinity(0))
            made = make(
                corpus, out, settings, workers=count, tokenizer=tokenizer, overwrite=overwrite, progress=progress
            )
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: the same command goes on where it was.") from None
    console = open_console()
    console.print(f"{out} {'is ready' if made else 'was ready already'}.", highlight=False, soft_wrap=True)
    show_splits(DataSet(out), console)
    console.print(f"Look closer with `dragoman inspect {out}`.", highlight=False, soft_wrap=True)


def find_corpus(
    named: list[str], valid: list[str], test: list[str], languages: str | None, file_format: str | None,
    mirror: Path | None, progress: Any,
) -> "Corpus":  # fmt: skip
    from dragoman.corpus import catalog
    from dragoman.corpus.sources import Languages, sources_from_arguments

    direction = None
    if languages is not None:
        parts = languages.split(":" if ":" in languages else "-")
        if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
            raise DragomanError(f"--languages {languages} is not a direction: write it as en-de, or en-GB:pt-BR.")
        direction = Languages(*parts)
    described = next((word for word in named if CORPUS_NAME.fullmatch(word) and not Path(word).exists()), None)
    described = described or next((word for word in named if word.endswith(".toml")), None)
    if described is not None:
        if len(named) > 1 or valid or test or file_format:
            raise DragomanError(
                f"{described} cannot be mixed with files: describe it all in one TOML file (see docs/prepare.md)."
            )
        turned = f"{described}/{languages}" if languages else described
        return catalog.resolve(turned, mirror=mirror, progress=progress)
    if mirror is not None:
        raise DragomanError("--from is a mirror of a named corpus; files are given by their own paths.")
    train, direction = sources_from_arguments(named, direction, file_format)
    valid_sources, _ = sources_from_arguments(valid, direction, None) if valid else ([], None)
    test_sources, _ = sources_from_arguments(test, direction, None) if test else ([], None)
    name = train[0].name if len(train) == 1 else f"{train[0].name} and {len(train) - 1} more"
    return catalog.Corpus(name, direction, tuple(train), tuple(valid_sources), tuple(test_sources))


def _list_corpora() -> None:
    from dragoman.corpus import catalog

    console = open_console()
    for description in catalog.describe():
        console.print(f"[bold]{description.name}[/bold]  {description.about}", highlight=False)
        if len(description.pairs) > 1:
            console.print(f"  as {', '.join(description.names)}", highlight=False, style="dim")
        for licence in description.licences:
            console.print(f"  {escape(licence)}", highlight=False, style="dim")

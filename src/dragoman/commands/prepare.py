"""`dragoman prepare`: text to a data set."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.typer_app import InterruptedByUserError, escape, open_console
from dragoman.errors import DragomanError
from dragoman.progress_callback import Progress, no_progress

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.corpus.catalog import Corpus
    from dragoman.corpus.sources import Languages
    from dragoman.settings import Settings

CORPUS_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(/[A-Za-z-]+)?|.+\.toml(/[A-Za-z-]+)?")


def prepare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="A corpus from the catalog, a corpus description (.toml), files, or - for stdin; and key=value.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Data set directory to create.")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="Validation set: a file, or two as A,B.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Test set: a file, or two as A,B.")] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Direction, such as en-de (default: from the file names).")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="File format (default: from the file names).")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of text files, such as latin-1 (default: utf-8).")
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option("--from", help="Directory with downloaded files, used instead of the network.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Existing SentencePiece .model, or the model whose tokenizer to use: a run, checkpoint, export or "
            "folder of transformers (default: train a new one).",
        ),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe whose settings are used.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Processes (default: one per core).")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing data set with other inputs or settings.")
    ] = False,
    list_corpora: Annotated[bool, typer.Option("--list", help="List the corpora in the catalog.")] = False,
) -> None:
    """Turn text into a cleaned, tokenized, memory-mapped data set.

    The same inputs and settings give the same bytes. An interrupted run resumes.

    **Examples**

        dragoman prepare demo --out data/demo

        dragoman prepare wmt16-en-de --out data/wmt16

        dragoman prepare news.en.xz news.de.xz --valid dev.en,dev.de --out data/news

        dragoman prepare terms.csv letters.xlf --encoding cp1252 --out data/office

        dragoman prepare own.tmx crawl.tsv@0.5 -l en-de --out data/own cleaning.max_words=100

        dragoman prepare own.tmx -l en-de --tokenizer models/opus-mt-en-de --out data/own
    """
    if list_corpora:
        _list_corpora()
        return
    arguments, overrides = _split_inputs(inputs or [])
    if not arguments or out is None:
        raise DragomanError("prepare needs a corpus and --out, for example `dragoman prepare demo --out data/demo`.")

    from dragoman.recipe import resolve

    options = PreparationOptions(workers or len(os.sched_getaffinity(0)), tokenizer, overwrite)
    find = partial(find_corpus, arguments, valid or [], test or [], languages, file_format, mirror, encoding=encoding)
    _prepare(find, out, resolve(recipe, overrides).settings, options)


@dataclass(frozen=True)
class PreparationOptions:
    workers: int
    tokenizer: Path | None
    overwrite: bool


def _prepare(
    find: Callable[[Progress], "Corpus"], out: Path, settings: "Settings", options: PreparationOptions
) -> None:
    """Find the corpus, create the data set with progress bars, and print a summary."""
    from dragoman.corpus.preparation import prepare as prepare_dataset
    from dragoman.decoding.model_choice import find_tokenizer
    from dragoman.terminal import progress_bars

    try:
        with progress_bars(open_console(stderr=True)) as progress:
            corpus = find(progress)
            tokenizer = None if options.tokenizer is None else find_tokenizer(options.tokenizer, corpus.languages)
            created = prepare_dataset(
                corpus, out, settings,
                workers=options.workers, tokenizer=tokenizer, overwrite=options.overwrite, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    _show_result(out, created, corpus)


def _split_inputs(inputs: list[str]) -> tuple[list[str], list[str]]:
    """Corpora and files, and key=value settings. A file may have = in its name."""
    overrides = [argument for argument in inputs if "=" in argument and not Path(argument).exists()]
    return [argument for argument in inputs if argument not in overrides], overrides


def _show_result(out: Path, created: bool, corpus: "Corpus") -> None:
    from dragoman.commands.dataset_table import show_dropped_pairs, show_splits
    from dragoman.corpus.dataset import DataSet
    from dragoman.corpus.dropped_pairs import warnings_of

    console = open_console()
    state = "is ready" if created else "already exists, made from the same inputs and settings"
    console.print(f"{out} {state}.", highlight=False, soft_wrap=True)
    data = DataSet(out)
    show_splits(data, console)
    _show_layouts(corpus, console)
    show_dropped_pairs(data, console)
    for warning in warnings_of(data.manifest, corpus.train):
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print(f"For details run `dragoman inspect {out}`.", highlight=False, soft_wrap=True)


def _show_layouts(corpus: "Corpus", console: "Console") -> None:
    """Print how each CSV file was read."""
    from dragoman.corpus.csv_format import csv_layout
    from dragoman.corpus.sources import is_standard_input

    for source in (*corpus.train, *corpus.valid, *corpus.test):
        if source.format == "csv" and not is_standard_input(source):
            layout = csv_layout(source.paths[0], corpus.languages, source.encoding)
            console.print(f"{source.paths[0]}: {layout}.", highlight=False, markup=False, soft_wrap=True)


def find_corpus(
    arguments: list[str],
    valid: list[str],
    test: list[str],
    languages: str | None,
    file_format: str | None,
    mirror: Path | None,
    progress: Progress = no_progress,
    *,
    encoding: str | None = None,
) -> "Corpus":
    """The corpus that the command line names: one of the catalog, a description, or files."""
    from dragoman.corpus import catalog
    from dragoman.corpus.sources import sources_from_arguments
    from dragoman.corpus.text_encodings import check_encoding

    direction = None if languages is None else _parse_direction(languages)
    name = _corpus_name(arguments)
    if name is not None:
        if len(arguments) > 1 or valid or test or file_format or encoding:
            raise DragomanError(
                f"{name} cannot be combined with files: describe the mixture in a TOML file (see docs/prepare.md)."
            )
        return catalog.resolve(f"{name}/{languages}" if languages else name, mirror=mirror, progress=progress)
    if mirror is not None:
        raise DragomanError("--from is only for a corpus from the catalog or a description: leave it out for files.")
    encoding = None if encoding is None else check_encoding(encoding)
    train, direction = sources_from_arguments(arguments, direction, file_format, encoding)
    valid_sources = sources_from_arguments(valid, direction, None, encoding)[0] if valid else []
    test_sources = sources_from_arguments(test, direction, None, encoding)[0] if test else []
    name = train[0].name if len(train) == 1 else f"{train[0].name} and {len(train) - 1} more"
    return catalog.Corpus(name, direction, tuple(train), tuple(valid_sources), tuple(test_sources))


def _corpus_name(arguments: list[str]) -> str | None:
    """The argument that is a corpus name or a description, if there is one."""
    for argument in arguments:
        if CORPUS_NAME.fullmatch(argument) and not Path(argument).exists():
            return argument
    return next((argument for argument in arguments if argument.endswith(".toml")), None)


def _parse_direction(languages: str) -> "Languages":
    from dragoman.corpus.sources import Languages

    codes = languages.split(":" if ":" in languages else "-")
    if len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
        raise DragomanError(f"--languages {languages} is not a direction: write it as en-de, or en-GB:pt-BR.")
    return Languages(*codes)


def _list_corpora() -> None:
    from dragoman.corpus import catalog

    console = open_console()
    for description in catalog.descriptions():
        console.print(f"[bold]{description.name}[/bold]  {description.about}", highlight=False)
        if len(description.pairs) > 1:
            console.print(f"  as {', '.join(description.names)}", highlight=False, style="dim")
        for licence in description.licences:
            console.print(f"  {escape(licence)}", highlight=False, style="dim")

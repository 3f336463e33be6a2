"""`dragoman prepare`: text to a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.command_line import command_line
from dragoman.commands.next_commands import show_next_commands
from dragoman.commands.typer_app import (
    AsJson,
    InterruptedByUserError,
    complete_recipe,
    escape,
    open_console,
    print_json,
)
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.corpus.catalog import Corpus
    from dragoman.pipeline import PreparedData

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        help="A corpus from the catalog, a corpus description (.toml), files, folders of synthesize, or - for stdin; "
        "and key=value.",
        show_default=False,
    ),
]
TokenizerPath = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="Existing SentencePiece .model, or the model whose tokenizer to use: a run, checkpoint, export or folder "
        "of transformers (default: train a new one).",
    ),
]
ScoreWith = Annotated[
    Path | None,
    typer.Option(
        "--score-with",
        metavar="MODEL",
        help="Model of this direction: pairs that it finds as improbable as mismatched ones are dropped.",
    ),
]
ScoreBackWith = Annotated[
    Path | None,
    typer.Option(
        "--score-back-with", metavar="MODEL", help="Model of the other direction: pairs are judged by both together."
    ),
]
Languages = Annotated[
    str | None, typer.Option("--languages", "-l", help="Direction, such as en-de (default: from the file names).")
]
FileFormat = Annotated[str | None, typer.Option("--format", help="File format (default: from the file names).")]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of text files, such as latin-1 (default: utf-8).")
]
Mirror = Annotated[
    Path | None, typer.Option("--from", help="Directory with downloaded files, used instead of the network.")
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Recipe whose corpus, cleaning, augmentation and tokenizer settings are used.",
        autocompletion=complete_recipe,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing data set with other inputs or settings.")
]


def prepare(
    inputs: Inputs = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Data set directory to create.")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="Validation set: a file, or two as A,B.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Test set: a file, or two as A,B.")] = None,
    languages: Languages = None,
    file_format: FileFormat = None,
    encoding: Encoding = None,
    mirror: Mirror = None,
    tokenizer: TokenizerPath = None,
    score_with: ScoreWith = None,
    score_back_with: ScoreBackWith = None,
    recipe: Recipe = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Processes (default: one per core).")] = None,
    overwrite: Overwrite = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="Show samples of the pairs that each rule dropped.")
    ] = False,
    list_corpora: Annotated[bool, typer.Option("--list", help="List the corpora in the catalog.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn text into a cleaned, tokenized, memory-mapped data set.

    The same inputs and settings give the same bytes. An interrupted run resumes.

    Of a --recipe, only the corpus, cleaning, augmentation and tokenizer settings have an effect here.

    **Examples**

        dragoman prepare demo --out data/demo

        dragoman prepare wmt16-en-de --out data/wmt16

        dragoman prepare news.en.xz news.de.xz --valid dev.en,dev.de --out data/news

        dragoman prepare terms.csv letters.xlf --encoding cp1252 --out data/office

        dragoman prepare own.tmx crawl.tsv@0.5 -l en-de --out data/own cleaning.max_words=100

        dragoman prepare crawl.en crawl.de --out data/crawl cleaning.rules=+language augmentation.upper_case=0.05

        dragoman prepare crawl.tmx --score-with runs/en-de --score-back-with runs/de-en --out data/crawl

        dragoman prepare news.en news.de data/back@0.5 --out data/news

        dragoman prepare own.tmx -l en-de --tokenizer models/opus-mt-en-de --out data/own
    """
    if list_corpora:
        _list_corpora(as_json=as_json)
        return
    arguments, overrides = _split_inputs(inputs or [])
    if not arguments or out is None:
        raise DragomanError("prepare needs a corpus and --out, for example `dragoman prepare demo --out data/demo`.")

    try:
        prepared = pipeline.prepare(
            arguments, out, valid=valid or [], test=test or [], languages=languages, file_format=file_format,
            encoding=encoding, mirror=mirror, tokenizer=tokenizer, score_with=score_with,
            score_back_with=score_back_with, recipe=recipe, settings=overrides, workers=workers, overwrite=overwrite,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    if as_json:
        _print_result(prepared)
    else:
        _show_result(prepared, recipe, samples=samples)


def _split_inputs(inputs: list[str]) -> tuple[list[str], list[str]]:
    """Corpora and files, and key=value settings. A file may have = in its name."""
    overrides = [argument for argument in inputs if "=" in argument and not Path(argument).exists()]
    return [argument for argument in inputs if argument not in overrides], overrides


def _print_result(prepared: "PreparedData") -> None:
    from dragoman.corpus import dataset_summary
    from dragoman.corpus.dropped_pairs import warnings_of

    data = prepared.dataset
    warnings = list(warnings_of(data.manifest, prepared.corpus.train))
    facts = {"data": str(prepared.path), "created": prepared.is_new, "warnings": warnings}
    print_json({**facts, **dataset_summary.as_json(data)})


def _show_result(prepared: "PreparedData", recipe: str | None, *, samples: bool) -> None:
    from dragoman.commands.dataset_table import show_dropped_pairs, show_samples, show_splits
    from dragoman.corpus.dropped_pairs import warnings_of

    console = open_console(optional=True)
    out, corpus, data = prepared.path, prepared.corpus, prepared.dataset
    state = "is ready" if prepared.is_new else "already exists, made from the same inputs and settings"
    console.print(f"{out} {state}.", highlight=False, soft_wrap=True)
    show_splits(data, console)
    _show_layouts(corpus, console)
    show_dropped_pairs(data, console)
    if samples:
        show_samples(data, open_console())
    for warning in warnings_of(data.manifest, corpus.train):
        open_console().print(f"[yellow]Warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)
    commands = {
        command_line("inspect", out): "sources, cleaning and sentence lengths",
        command_line("train", recipe or "RECIPE", "--data", out, "--out", "RUN"): "train a model",
    }
    show_next_commands(commands, console)


def _show_layouts(corpus: "Corpus", console: "Console") -> None:
    """Print how each CSV file was read."""
    from dragoman.corpus.csv_format import csv_layout
    from dragoman.corpus.sources import is_standard_input

    for source in (*corpus.train, *corpus.valid, *corpus.test):
        if source.format == "csv" and not is_standard_input(source):
            layout = csv_layout(source.paths[0], corpus.languages, source.encoding)
            console.print(f"{source.paths[0]}: {layout}.", highlight=False, markup=False, soft_wrap=True)


def _list_corpora(*, as_json: bool) -> None:
    from dragoman.corpus import catalog

    if as_json:
        facts = ("name", "about", "names", "licences")
        print_json([{fact: getattr(each, fact) for fact in facts} for each in catalog.descriptions()])
        return
    console = open_console()
    for description in catalog.descriptions():
        console.print(f"[bold]{description.name}[/bold]  {description.about}", highlight=False)
        if len(description.pairs) > 1:
            console.print(f"  as {', '.join(description.names)}", highlight=False, style="dim")
        for licence in description.licences:
            console.print(f"  {escape(licence)}", highlight=False, style="dim")

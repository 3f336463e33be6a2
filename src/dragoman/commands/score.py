"""`dragoman score`: BLEU and chrF of a system, or a comparison of two."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.commands.typer_app import AsJson, open_console, print_json
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.scoring import Comparison, Score


def score(
    systems: Annotated[
        list[str], typer.Argument(help="One or two systems: a run, a model, or a file of translations.")
    ],
    source: Annotated[Path | None, typer.Option("--src", help="Source text, for models to translate.")] = None,
    reference: Annotated[Path | None, typer.Option("--ref", help="Reference translations.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Data set with source and references, instead of --src and --ref.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Split of --data: test or valid.")] = "test",
    compare: Annotated[bool, typer.Option("--compare", help="Require two systems.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write an HTML page of the sentences in which two systems differ most."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score translations with BLEU and chrF, or compare two systems by paired bootstrap.

    **Examples**

        dragoman score runs/demo/run --data runs/demo/data

        dragoman score runs/base --src newstest2014.en --ref newstest2014.de

        dragoman score --compare runs/old runs/new --data data/demo --html differences.html
    """
    if len(systems) > 2:
        raise DragomanError(f"score takes one system or two, not {len(systems)}.")
    if len(systems) < 2 and (compare or html is not None):
        raise DragomanError(f"{'--compare' if compare else '--html'} needs two systems: give the second one, too.")
    if len(systems) == 1:
        found = pipeline.score(systems[0], source=source, reference=reference, data=data, split=split)
        _print_score(found, as_json=as_json)
        return
    comparison = pipeline.compare(*systems, source=source, reference=reference, data=data, split=split, html=html)
    if html is not None:
        open_console(stderr=True, optional=True).print(f"Comparison page: {html}", highlight=False, soft_wrap=True)
    _print_comparison(systems, comparison, as_json=as_json)


def _print_score(result: "Score", *, as_json: bool) -> None:
    from dragoman.terminal import table

    if as_json:
        print_json(asdict(result))
        return
    rows = table("", "score", "signature", right=(1,))
    for measure in (result.bleu, result.chrf):
        rows.add_row(measure.name, f"{measure.value:.2f}", measure.signature)
    open_console().print(rows)


def _print_comparison(systems: Sequence[str], comparison: "Comparison", *, as_json: bool) -> None:
    from dragoman.decoding.scoring import SIGNIFICANT
    from dragoman.terminal import table

    if as_json:
        print_json(asdict(comparison))
        return
    console = open_console()
    rows = table("", *systems, "difference", "p", right=(1, 2, 3, 4))
    for difference in (comparison.bleu, comparison.chrf):
        rows.add_row(
            difference.name,
            f"{difference.baseline:.2f} ± {difference.baseline_margin:.2f}",
            f"{difference.system:.2f} ± {difference.system_margin:.2f}",
            f"{difference.gain:+.2f}",
            f"{difference.p_value:.3f}",
        )
    console.print(rows)
    significant = [metric.name for metric in (comparison.bleu, comparison.chrf) if metric.significant]
    verdict = (
        f"The difference in {' and '.join(significant)} is significant"
        if significant
        else "No difference is significant"
    )
    console.print(f"{verdict} (paired bootstrap, p < {SIGNIFICANT}).", highlight=False)

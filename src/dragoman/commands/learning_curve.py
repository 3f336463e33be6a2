"""`dragoman learning-curve`: what more data would bring."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.commands.typer_app import (
    AsJson,
    InterruptedByUserError,
    LocalWorkers,
    RecipeName,
    only_json,
    open_console,
    print_json,
)
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.insight.data_forecast import LearningCurve


def learning_curve(
    recipe: RecipeName,
    data: Annotated[Path, typer.Option("--data", help="A prepared data set.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    parts: Annotated[str, typer.Option("--parts", help="Parts of the pairs to train on.")] = "0.1,0.33,1",
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Begin with these weights, as train does.", show_default=False),
    ] = None,
    workers: LocalWorkers = None,
    as_json: AsJson = False,
) -> None:
    """Train on parts of a data set, and forecast what twice as many pairs would bring.

    Decide with it whether to pay for more translations. The runs differ in the pairs alone: all have the same number of
    steps, so set training.steps and evaluation.every for a short run. Of each the evaluation with
    the lowest validation loss counts.

    **Examples**

        dragoman learning-curve small --data data/own --out runs/curve training.steps=2000 evaluation.every=200

        dragoman learning-curve small --from runs/base --data data/own --out runs/curve --parts 0.05,0.1,0.33,1
    """
    import torch  # noqa: F401 (where it is not installed, say so before anything else)

    try:
        with only_json(as_json):
            curve = pipeline.learning_curve(
                recipe, data, out, parts=_parse_parts(parts), settings=overrides or [], start=start, workers=workers
            )
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    if as_json:
        print_json(curve.to_json())
    else:
        _show(curve)


def _parse_parts(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise DragomanError(f"--parts {text} is not a list of numbers: write for example 0.1,0.33,1.") from None


def _show(curve: "LearningCurve") -> None:
    from dragoman.number_format import count
    from dragoman.terminal import table

    console = open_console()
    rows = table("pairs", "validation loss", "BLEU", "run", right=(0, 1, 2))
    for part in curve.parts:
        bleu = "-" if part.bleu is None else f"{part.bleu:.1f}"
        rows.add_row(count(part.pairs), f"{part.nll:.3f}", bleu, part.run)
    console.print(rows)
    console.print(curve.describe(), highlight=False)

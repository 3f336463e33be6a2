"""`dragoman train`: a run on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman import pipeline


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe, or the path of a TOML file.", show_default=False)],
    data: Annotated[Path, typer.Option("--data", help="A prepared data set.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Workers on this machine (default: one per GPU, or one).")
    ] = None,
) -> None:
    """Train a model, or resume an interrupted run.

    Ctrl-C finishes the step, saves a checkpoint and exits; the same command resumes exactly where it stopped. A second
    Ctrl-C exits at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/tiny --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000
    """
    trained = pipeline.train(recipe, data, out, settings=overrides or [], workers=workers)
    if trained.reason == "diverged":
        raise typer.Exit(1)

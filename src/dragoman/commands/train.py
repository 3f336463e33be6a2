"""`dragoman train`: a run on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dragoman.errors import EXIT_RESUMABLE
from dragoman.worker_environment import SECRET


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

    Ctrl-C or SIGTERM finishes the step, saves a checkpoint and exits with code 75; the same command resumes exactly
    where it stopped. A second Ctrl-C exits at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/tiny --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000
    """
    from dragoman.corpus.dataset import DataSet
    from dragoman.decoding.validation_scorer import make_scorer
    from dragoman.distributed.cluster import launched_externally
    from dragoman.launch import local_launcher, scheduler_environment
    from dragoman.recipe import resolve
    from dragoman.training.worker import TrainingJob

    scheduler_environment.join_world()
    settings = resolve(recipe, overrides or []).settings
    if not launched_externally():  # There, workers report it together.
        DataSet(data).pairs("valid")
    count = workers or local_launcher.default_workers()
    job = TrainingJob(settings, data, out, local_launcher.worker_threads(count))
    reason = local_launcher.train(job, count, make_scorer)
    if reason == "diverged":
        raise typer.Exit(1)
    if reason == "interrupted" and SECRET not in os.environ:  # `launch` itself exits with this code, not its workers.
        raise typer.Exit(EXIT_RESUMABLE)

"""`dragoman train`: a run on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe, or the path of a TOML file.", show_default=False)],
    data: Annotated[
        list[Path],
        typer.Option(
            "--data",
            metavar="DATA",
            help="Prepared data set; several with weights: --data new --data old@0.3.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Workers on this machine (default: one per GPU, or one).")
    ] = None,
    also_evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--also-evaluate",
            metavar="NAME=SOURCE,REFERENCE",
            help="Evaluate on these files, too: news=news.en,news.de. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a model, or resume an interrupted run.

    Ctrl-C finishes the step, saves a checkpoint and exits; the same command resumes exactly where it stopped. A second
    Ctrl-C exits at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/tiny --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000

        dragoman train small --data new --data old@0.3 --also-evaluate news=news.en,news.de --out runs/adapted
    """
    from dragoman.decoding.validation_scorer import make_scorer
    from dragoman.distributed.cluster import launched_externally
    from dragoman.launch import local_launcher, scheduler_environment
    from dragoman.recipe import resolve
    from dragoman.training.worker import TrainingJob

    scheduler_environment.join_world()
    settings = resolve(recipe, overrides or []).settings
    count = workers or local_launcher.default_workers()
    job = TrainingJob(settings, data, out, local_launcher.worker_threads(count), also_evaluate or ())
    if not launched_externally():  # There, workers report it together.
        job.open_texts()
    reason = local_launcher.train(job, count, make_scorer)
    if reason == "diverged":
        raise typer.Exit(1)

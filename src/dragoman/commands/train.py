"""`dragoman train`: a run on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dragoman import pipeline
from dragoman.commands.next_commands import TRAINED, show_after_training
from dragoman.commands.typer_app import AsJson, LocalWorkers, RecipeName, only_json, print_json
from dragoman.errors import EXIT_RESUMABLE
from dragoman.worker_environment import HOST, SECRET

StartModelPath = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="MODEL",
        help="Begin with the weights of a run, checkpoint or export, or of a folder of MarianMT (OPUS-MT), M2M100 or "
        "NLLB.",
        show_default=False,
    ),
]
EvaluationSets = Annotated[
    list[str] | None,
    typer.Option(
        "--also-evaluate",
        metavar="NAME=SOURCE,REFERENCE",
        help="Evaluate on these files, too: news=news.en,news.de. Repeatable.",
        show_default=False,
    ),
]


def train(
    recipe: RecipeName,
    data: Annotated[
        list[str],
        typer.Option("--data", help="A prepared data set, or several: --data new --data old@0.3.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    start: StartModelPath = None,
    workers: LocalWorkers = None,
    also_evaluate: EvaluationSets = None,
    as_json: AsJson = False,
) -> None:
    """Train a model, or resume an interrupted run.

    The recipe gives the settings of the model and of training. Its corpus, cleaning, augmentation and tokenizer
    settings have no effect here: they belong to `dragoman prepare`, with --recipe or key=value.

    With --from, training continues from the weights of another model, with a new optimizer: the architecture and the
    tokenizer come from that model, and the learning rate from the settings under fine_tuning. Prepare the data set with
    the tokenizer of the model.

    Ctrl-C or SIGTERM finishes the step, saves a checkpoint and exits with code 75; the same command resumes exactly
    where it stopped. A second Ctrl-C exits at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/tiny --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000

        dragoman train small --from models/opus-mt-en-de --data data/own --out runs/own training.steps=2000

        dragoman train small --from runs/base --data data/own --out runs/own fine_tuning.freeze=embeddings

        dragoman train small --data new --data old@0.3 --also-evaluate news=news.en,news.de --out runs/adapted
    """
    with only_json(as_json):
        trained = pipeline.train(
            recipe, data, out, settings=overrides or [], start=start, workers=workers, also_evaluate=also_evaluate or ()
        )
    is_first = os.environ.get("RANK", "0") == "0" and HOST not in os.environ  # `launch` prints what comes next itself.
    if as_json and is_first:
        from dragoman.insight.run_progress import describe_progress

        print_json({"run": str(out), **describe_progress(out)})
    elif trained.reason in TRAINED and is_first:
        from dragoman.recipe import resolve

        show_after_training(out, resolve(recipe, overrides or []).settings)
    if trained.reason == "diverged":
        raise typer.Exit(1)
    if trained.reason == "interrupted" and SECRET not in os.environ:  # `launch` exits with this code, not its workers.
        raise typer.Exit(EXIT_RESUMABLE)

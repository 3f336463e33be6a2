"""`dragoman train`: a run on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe, or the path of a TOML file.", show_default=False)],
    data: Annotated[Path, typer.Option("--data", help="A prepared data set.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Begin with the weights of a run, checkpoint or export, or of a folder of MarianMT (OPUS-MT), M2M100 "
            "or NLLB.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Workers on this machine (default: one per GPU, or one).")
    ] = None,
) -> None:
    """Train a model, or resume an interrupted run.

    With --from, training continues from the weights of another model, with a new optimizer: the architecture and the
    tokenizer come from that model, and the learning rate from the settings under fine_tuning. Prepare the data set with
    the tokenizer of the model.

    Ctrl-C finishes the step, saves a checkpoint and exits; the same command resumes exactly where it stopped. A second
    Ctrl-C exits at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/tiny --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000

        dragoman train small --from models/opus-mt-en-de --data data/own --out runs/own training.steps=2000

        dragoman train small --from runs/base --data data/own --out runs/own fine_tuning.freeze=embeddings
    """
    from dragoman.corpus.dataset import DataSet
    from dragoman.decoding.model_choice import find_model
    from dragoman.decoding.validation_scorer import make_scorer
    from dragoman.distributed.cluster import launched_externally
    from dragoman.launch import local_launcher, scheduler_environment
    from dragoman.recipe import COMMAND_LINE, resolve
    from dragoman.training.start_model import StartModel
    from dragoman.training.worker import TrainingJob

    scheduler_environment.join_world()
    resolved = resolve(recipe, overrides or [])
    given = tuple(key for key, origin in resolved.origins.items() if origin == COMMAND_LINE)
    model = None if start is None else StartModel(find_model(start), given)
    if not launched_externally():  # There, workers report it together.
        dataset = DataSet(data)
        dataset.pairs("valid")
        if model is not None:
            model.open(resolved.settings, dataset)
    count = workers or local_launcher.default_workers()
    job = TrainingJob(resolved.settings, data, out, local_launcher.worker_threads(count), model)
    reason = local_launcher.train(job, count, make_scorer)
    if reason == "diverged":
        raise typer.Exit(1)

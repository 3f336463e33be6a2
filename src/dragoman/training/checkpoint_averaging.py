"""Checkpoint averaging: the mean of several checkpoints' weights at the end of a run, evaluated like any other."""

import time

from dragoman.distributed.cluster import Cluster
from dragoman.events import CheckpointsAveraged
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import load_model
from dragoman.model.transformer import Transformer
from dragoman.settings import CheckpointSettings
from dragoman.training import checkpoint
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.evaluation import Evaluator


def save_average(
    settings: CheckpointSettings,
    checkpoints: Checkpoints,
    architecture: Architecture,
    cluster: Cluster,
    evaluator: Evaluator,
    step: int,
) -> CheckpointsAveraged | None:
    """Average the newest or the best checkpoints: the main worker writes, all evaluate.

    None if there is nothing to average: not asked for, no checkpoints, averaged before, or the last one not written.
    """
    if not settings.average:
        return None
    checkpoints.wait()
    started = time.perf_counter()
    model = Transformer(architecture).to(cluster.device)
    names: list[str] = []
    if cluster.is_main and not checkpoints.failure:
        newest = settings.average_of == "last"
        folder = checkpoints.folder
        names = checkpoint.trained_names(folder) if newest else checkpoint.best(folder, settings.average)
        names = names[: settings.average]
        is_new = not checkpoint.is_average_of(folder, step, names)  # A finished run may be started again.
        written = checkpoints.write_average(step, names) if names and is_new else None
        if written is None:
            names = []
        else:
            model = load_model(written, cluster.device).model
    names = cluster.broadcast_json(names)
    if not names:
        return None
    for tensor in model.state_dict().values():
        cluster.broadcast(tensor, 0)
    evaluation = evaluator.evaluate(model, step, checkpoint.AVERAGED)
    return CheckpointsAveraged(
        step=step,
        names=names,
        nll=evaluation.nll,
        bleu=evaluation.bleu,
        chrf=evaluation.chrf,
        sets=evaluation.sets,
        gains=evaluation.gains,
        averaging_s=time.perf_counter() - started,
    )

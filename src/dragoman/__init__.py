"""Train translation models across whatever machines you have, and know what limits the run."""

from dragoman.distillation.distiller import Distillation, distill
from dragoman.errors import DragomanError
from dragoman.pipeline import (
    PreparedData,
    Report,
    SyntheticCorpus,
    TrainedRun,
    compare,
    export,
    learning_curve,
    load,
    prepare,
    report,
    score,
    synthesize,
    train,
    translate,
    translate_files,
)
from dragoman.progress_callback import Progress, no_progress

__version__ = "0.1.0"
__all__ = [
    "Distillation",
    "DragomanError",
    "PreparedData",
    "Progress",
    "Report",
    "SyntheticCorpus",
    "TrainedRun",
    "compare",
    "distill",
    "export",
    "learning_curve",
    "load",
    "no_progress",
    "prepare",
    "report",
    "score",
    "synthesize",
    "train",
    "translate",
    "translate_files",
]

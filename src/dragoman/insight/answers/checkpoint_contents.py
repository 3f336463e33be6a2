"""Checkpoints: their files and their size."""

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.run_history import RunHistory
from dragoman.number_format import size, span
from dragoman.run_folder import CHECKPOINT_FILES

NO_CHECKPOINT = "no checkpoint is written yet"


def answer_checkpoint_files(history: RunHistory) -> Answer:
    key, question = "checkpoint-files", "What files is a checkpoint made of?"
    if not history.checkpoints:
        return unknown(key, question, NO_CHECKPOINT)
    saved = history.checkpoints[-1]
    if not saved.files:
        return unknown(key, question, "this run did not record them")
    evidence = [
        f"{name}, {size(number_bytes)}: {CHECKPOINT_FILES.get(name, 'unknown')}"
        for name, number_bytes in saved.files.items()
    ]
    return Answer(key, question, f"{len(saved.files)} files; the newest checkpoint is `{saved.name}`.", evidence)


def answer_checkpoint_size(history: RunHistory) -> Answer:
    key, question = "checkpoint-size", "How big is a checkpoint, and why?"
    if not history.checkpoints:
        return unknown(key, question, NO_CHECKPOINT)
    saved, parameters = history.checkpoints[-1], history.started.parameters
    bytes_per_parameter = saved.size_bytes / parameters
    return Answer(
        key,
        question,
        f"{size(saved.size_bytes)}: {bytes_per_parameter:.1f} bytes for each of {parameters / 1e6:.1f} M parameters.",
        [
            f"weights take 4 bytes per parameter, {size(4 * parameters)}; most of the rest is optimizer state",
            f"written in {span(saved.write_s)} in the background; it stalled training for {saved.stall_s:.3f} s",
        ],
    )

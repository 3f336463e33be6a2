"""A teacher that was trained for seconds, its data set, and settings of a student that trains in as little time."""

from pathlib import Path

import dragoman
from dragoman.corpus import demo

from ..small import TINY

STUDENT = [*TINY, "tokenizer.vocabulary_size=400", "model.dropout=0", "decoding.beam=1"]
TEACHER = [*TINY, "training.steps=60", "model.d_model=48", "evaluation.every=60", "schedule.learning_rate=0.01"]


def make_teacher(folder: Path) -> None:
    pairs = demo.generate(360, seed=2, valid=1, test=1).train
    for side, language in enumerate(("en", "de")):
        (folder / f"all.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs[:300]))
        (folder / f"more.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs[300:]))
    dragoman.prepare(
        [folder / "all.en", folder / "all.de"], folder / "data", workers=1, progress=dragoman.no_progress,
        settings={"tokenizer.vocabulary_size": 400, "corpus.valid_pairs": 10, "corpus.test_pairs": 12},
    )  # fmt: skip
    dragoman.train("tiny", folder / "data", folder / "teacher", settings=TEACHER, workers=1)

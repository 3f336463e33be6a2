"""A teacher that was trained for seconds, its data set, and settings of a student that trains in as little time."""

from pathlib import Path

import dragoman
from dragoman.corpus import demo

from ..small import TINY

STUDENT = [
    *TINY,
    "training.steps=40",
    "evaluation.every=40",
    "tokenizer.vocabulary_size=400",
    "model.dropout=0",
    "decoding.beam=1",
]
TEACHER = [*TINY, "training.steps=150", "model.d_model=64", "evaluation.every=150", "schedule.learning_rate=0.005"]


def make_teacher(folder: Path) -> None:
    pairs = demo.generate(60, seed=2, valid=1, test=1).train
    for side, language in enumerate(("en", "de")):
        for name, chosen in {"all": pairs[:50], "more": pairs[50:], "seen": pairs[:12]}.items():
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in chosen))
    # Tested with sentences that it has seen: so a model that was trained for seconds has some BLEU to lose.
    seen = f"{folder / 'seen.en'},{folder / 'seen.de'}"
    dragoman.prepare(
        [folder / "all.en", folder / "all.de"], folder / "data", valid=[seen], test=[seen], workers=1,
        settings={"tokenizer.vocabulary_size": 400}, progress=dragoman.no_progress,
    )  # fmt: skip
    dragoman.train("tiny", folder / "data", folder / "teacher", settings=TEACHER, workers=1)

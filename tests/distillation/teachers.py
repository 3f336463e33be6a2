"""A teacher that was trained for seconds, a data set, and settings of a student that trains in as little time."""

from pathlib import Path

import dragoman

from ..models import PAIRS, briefly_trained_model, save_model, train_tokenizer
from ..small import TINY

STUDENT = [*TINY, "tokenizer.vocabulary_size=400", "model.dropout=0", "decoding.beam=1"]


def make_teacher(folder: Path) -> None:
    for side, language in enumerate(("en", "de")):
        for name, chosen in {"all": PAIRS[:60], "more": PAIRS[60:70], "test": PAIRS[:12]}.items():
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in chosen))
    test = f"{folder / 'test.en'},{folder / 'test.de'}"
    dragoman.prepare(
        [folder / "all.en", folder / "all.de"], folder / "data", valid=[test], test=[test], workers=1,
        settings={"tokenizer.vocabulary_size": 400}, progress=dragoman.no_progress,
    )  # fmt: skip
    tokenizer = train_tokenizer(folder)
    # It has seen the test set, so that a model that was trained for seconds has some BLEU to lose.
    save_model(folder / "teacher", briefly_trained_model(tokenizer), tokenizer, "en-de", beam=2)

"""Another toolkit's training, run as its users run it, with a note of every batch: when it began, and its tokens.

This is run by the Python of that toolkit's own environment (see `toolkits`), so it imports nothing of ours:

    python watched.py joeynmt NOTES train config.yaml
    python watched.py eole NOTES train -config config.yaml
"""

import functools
import json
import sys
import time
from pathlib import Path


def main() -> None:
    name, notes, *arguments = sys.argv[1:]
    sys.argv = [name, *arguments]
    with Path(notes).open("w", encoding="utf-8") as file:

        def note(source_tokens: int, target_tokens: int) -> None:
            line = {"at_s": time.perf_counter(), "source_tokens": source_tokens, "target_tokens": target_tokens}
            file.write(json.dumps(line) + "\n")
            file.flush()

        {"joeynmt": watch_joeynmt, "eole": watch_eole}[name](note)


def watch_joeynmt(note) -> None:
    from joeynmt.__main__ import main
    from joeynmt.training import TrainManager

    def counted(_, batch):
        # Lengths with the end mark on both sides; the target's start mark is not counted.
        note(int(batch.src_length.sum()), int(batch.ntokens))

    TrainManager._train_step = _after(counted, TrainManager._train_step)
    main()


def watch_eole(note) -> None:
    from eole.bin.main import main
    from eole.trainer import Trainer

    def counted(trainer, batches, *_, **__):
        pad = trainer.train_loss.padding_idx
        # Eole's encoder sees no end mark. We count one for each sentence all the same: it is the same text.
        source = sum(int(batch["srclen"].sum()) + len(batch["srclen"]) for batch in batches)
        note(source, sum(int((batch["tgt"][:, 1:] != pad).sum()) for batch in batches))

    Trainer._train_step = _after(counted, Trainer._train_step)
    main()


def _after(first, method):
    @functools.wraps(method)
    def both(*arguments, **options):
        first(*arguments, **options)
        return method(*arguments, **options)

    return both


if __name__ == "__main__":
    main()

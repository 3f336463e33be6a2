"""Run the training of another toolkit as its users do, and log every batch: its start time and its tokens.

The Python of that toolkit's own environment runs this file (see `peer_toolkits`), so it imports nothing of Dragoman:

    python toolkit_batch_logger.py joeynmt LOG train config.yaml
    python toolkit_batch_logger.py eole LOG train -config config.yaml
"""

import functools
import json
import sys
import time
from pathlib import Path


def main() -> None:
    name, log, *arguments = sys.argv[1:]
    sys.argv = [name, *arguments]
    with Path(log).open("w", encoding="utf-8") as file:

        def log_batch(source_tokens: int, target_tokens: int) -> None:
            line = {"at_s": time.perf_counter(), "source_tokens": source_tokens, "target_tokens": target_tokens}
            file.write(json.dumps(line) + "\n")
            file.flush()

        {"joeynmt": run_joeynmt, "eole": run_eole}[name](log_batch)


def run_joeynmt(log_batch) -> None:
    from joeynmt.__main__ import main
    from joeynmt.training import TrainManager

    def count(_, batch):
        # Lengths include EOS on both sides; BOS of the target is not counted.
        log_batch(int(batch.src_length.sum()), int(batch.ntokens))

    TrainManager._train_step = _call_before(TrainManager._train_step, count)
    main()


def run_eole(log_batch) -> None:
    from eole.bin.main import main
    from eole.trainer import Trainer

    def count(trainer, batches, *_, **__):
        pad = trainer.train_loss.padding_idx
        # Eole's encoder gets no EOS. One per sentence is counted nevertheless, because the text is the same.
        source_tokens = sum(int(batch["srclen"].sum()) + len(batch["srclen"]) for batch in batches)
        log_batch(source_tokens, sum(int((batch["tgt"][:, 1:] != pad).sum()) for batch in batches))

    Trainer._train_step = _call_before(Trainer._train_step, count)
    main()


def _call_before(method, first):
    @functools.wraps(method)
    def both(*arguments, **options):
        first(*arguments, **options)
        return method(*arguments, **options)

    return both


if __name__ == "__main__":
    main()

"""Speed of models on one CPU core, mostly of CTranslate2 exports.

The time is that of the CPU, not of the clock: other work on the machine hardly changes it. Models that are compared
alternate, so that a machine that slows down slows all of them.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dragoman.decoding.ctranslate2_translator import CPU_BATCH_TOKENS, CTranslate2Translator
from dragoman.decoding.line_translator import make_batches

ROUNDS = 3


def load_on_one_core(export: Path, **decoding: Any) -> CTranslate2Translator:
    """A translator that uses one thread of the CPU."""
    # CTranslate2 sets OpenMP's number of threads for the thread that loads a model, and torch would follow it.
    with ThreadPoolExecutor(1) as loader:
        return loader.submit(
            CTranslate2Translator.load, export, "cpu", parallel_batches=1, threads=1, **decoding
        ).result()


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute in one thread. Several ones that wait for each other on a busy machine use CPU time, too."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def measure_words_per_s(
    translators: Mapping[str, CTranslate2Translator], lines: Sequence[str], rounds: int = ROUNDS
) -> dict[str, float]:
    """Source words per second of each translator, text to text."""
    works = {name: (lambda each=each: each.translate(lines)) for name, each in translators.items()}
    words = sum(len(line.split()) for line in lines)
    return {name: words / statistics.median(times_s) for name, times_s in measure_cpu_s(works, rounds).items()}


def search_with_lengths(
    translator: CTranslate2Translator, pairs: Sequence[tuple[str, str]], beam: int
) -> Callable[[], object]:
    """A search whose translations are as long as given ones: it measures models that have learned nothing.

    All sentences of a batch get its mean length.
    """
    tokenizer = translator.tokenizer
    lengths = {
        (*tokenizer.encode(source), tokenizer.eos_id): len(tokenizer.encode(target, "target")) + 1
        for source, target in pairs
    }
    batches = [
        (
            [[tokenizer.pieces[token] for token in source[:-1]] for source in batch],
            round(statistics.mean(lengths[source] for source in batch)),
        )
        for batch in make_batches(lengths, CPU_BATCH_TOKENS)
    ]

    def search() -> None:
        for sources, length in batches:
            translator.runtime.translate_batch(
                sources, beam_size=beam, num_hypotheses=beam, length_penalty=translator.options.length_penalty,
                max_input_length=0, min_decoding_length=length, max_decoding_length=length, return_scores=True,
            )  # fmt: skip

    return search


def measure_cpu_s(works: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of CPU time of each work in each round, after one that is not counted."""
    times_s: dict[str, list[float]] = {name: [] for name in works}
    for counted in range(rounds + 1):
        for name, work in works.items():
            started_s = time.process_time()
            work()
            if counted:
                times_s[name].append(time.process_time() - started_s)
    return times_s

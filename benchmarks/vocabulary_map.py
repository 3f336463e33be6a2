"""A vocabulary map (lexical shortlist) of CTranslate2 for a student: what it gains, and what it changes.

The map lists, for each source token, the target tokens that occur most with it in Europarl (Dice coefficient), and the
200 most frequent ones for all. CTranslate2 then projects onto the candidates of a batch alone. The weights are random,
as the speed does not depend on them; so the changed translations say only that neighbours matter, not how much.

    python -m benchmarks.vocabulary_map [--recipe student] [--candidates 50] [--sentences 96] [--pairs 40000]
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.command_line import make_parser
from benchmarks.corpora import CORPORA, EUROPARL, NEWSTEST, read_split
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.one_core_speed import load_on_one_core, measure_cpu_s
from dragoman.distillation.size_variants import export_random
from dragoman.model.architecture import architecture_of
from dragoman.model.model_folder import ModelDescription
from dragoman.settings import DecodingSettings, TokenizerSettings

FREQUENT_TOKENS = 200
MAP_FILE = "vmap.txt"
BATCH_SIZES = (1, 4, 24)
TOKENS = 32
"""Length of every translation."""
Pieces = Sequence[str]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--recipe", default="student")
    parser.add_argument("--candidates", type=int, default=50, help="target tokens for each source token")
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--pairs", type=int, default=40_000, help="pairs of Europarl that the map is made from")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora")
    options = parser.parse_args()
    sides = [side[: options.pairs] for side in read_split(EUROPARL, "train", options.corpora)]
    test = [side[: options.sentences] for side in read_split(NEWSTEST, "newstest2014", options.corpora)]
    with tempfile.TemporaryDirectory() as folder:
        architecture = architecture_of(options.recipe)
        path = Path(folder) / "tokenizer.model"
        train(count_words([*sides[0], *sides[1]]), TokenizerSettings(vocabulary_size=architecture.vocabulary), path)
        tokenizer = Tokenizer.load(path)
        description = ModelDescription(architecture, Languages("en", "de"), DecodingSettings(), tokenizer)
        export = export_random(description, Path(folder) / "student")
        shortlist = make_shortlist(tokenizer, sides, options.candidates)
        (export / MAP_FILE).write_text(shortlist.as_text(tokenizer.pieces))
        print_figures("vocabulary_map", measure(load_on_one_core(export), shortlist, test), recipe=options.recipe)


@dataclass(frozen=True)
class Shortlist:
    """Target tokens for all sentences, and for each source token."""

    frequent: set[int]
    by_source: dict[int, list[int]]

    def as_text(self, pieces: Pieces) -> str:
        lines = ["\t" + " ".join(pieces[token] for token in sorted(self.frequent))]
        lines += [f"{pieces[source]}\t{' '.join(pieces[t] for t in found)}" for source, found in self.by_source.items()]
        return "\n".join(lines) + "\n"

    def candidates(self, source: Sequence[int]) -> set[int]:
        return self.frequent.union(*(self.by_source.get(token, ()) for token in source))


def make_shortlist(tokenizer: Tokenizer, sides: Sequence[Sequence[str]], size: int) -> Shortlist:
    counts = np.zeros((tokenizer.vocab_size, tokenizer.vocab_size), np.float32)
    totals = np.zeros((2, tokenizer.vocab_size), np.float32)
    for pair in zip(*map(tokenizer.encode_all, sides), strict=True):
        source, target = (np.unique(np.array(side, np.int64)) for side in pair)
        counts[np.ix_(source, target)] += 1
        totals[0, source] += 1
        totals[1, target] += 1
    special = max(tokenizer.special_ids)
    dice = 2 * counts / np.maximum(totals[0][:, None] + totals[1][None], 1)
    best = np.argsort(-dice, axis=1)[:, :size]
    frequent = {int(token) for token in np.argsort(-totals[1])[:FREQUENT_TOKENS] if token > special}
    return Shortlist(frequent, {
        source: [int(target) for target in best[source] if counts[source, target] and target > special]
        for source in range(special + 1, tokenizer.vocab_size)
        if totals[0, source]
    })  # fmt: skip


def measure(translator: CTranslate2Translator, shortlist: Shortlist, test: Sequence[Sequence[str]]) -> Iterator[Figure]:
    tokenizer = translator.tokenizer
    sources, references = (tokenizer.encode_all(side) for side in test)
    reach = [shortlist.candidates(source) for source in sources]
    missed = [sum(token not in found for token in side) for side, found in zip(references, reach, strict=True)]
    share = 100 * sum(missed) / sum(map(len, references))
    yield Figure("candidates of a sentence", f"{statistics.mean(map(len, reach)):.0f}", "", None)
    yield Figure("tokens of the references that are out of reach", f"{share:.1f} %", "", share)
    pieces = sorted(([tokenizer.pieces[token] for token in source] for source in sources), key=len)
    for size in BATCH_SIZES:
        batches = split(pieces, size)
        times_s = measure_cpu_s({name: search(translator, batches, name == "map") for name in ("map", "none")})
        speedup = statistics.median(slow / fast for slow, fast in zip(times_s["none"], times_s["map"], strict=True))
        yield Figure(f"speed with the map, {size} sentences at a time", f"{speedup:.2f} x", "", speedup)
    for uses_map in (False, True):
        alone, together = (
            search(translator, split(pieces, size), uses_map)() for size in (BATCH_SIZES[0], BATCH_SIZES[-1])
        )
        changed = sum(one != other for one, other in zip(alone, together, strict=True))
        name = f"translations that change with their neighbours, {'with' if uses_map else 'without'} the map"
        yield Figure(name, f"{changed} of {len(pieces)}", "0", changed)


def split(pieces: list[Pieces], size: int) -> list[list[Pieces]]:
    return [pieces[first : first + size] for first in range(0, len(pieces), size)]


def search(
    translator: CTranslate2Translator, batches: Sequence[Sequence[Pieces]], uses_map: bool
) -> Callable[[], list[list[str]]]:
    """Greedy search."""
    return lambda: [
        found.hypotheses[0]
        for batch in batches
        for found in translator.runtime.translate_batch(
            batch, beam_size=1, use_vmap=uses_map, min_decoding_length=TOKENS, max_decoding_length=TOKENS
        )
    ]


if __name__ == "__main__":
    main()

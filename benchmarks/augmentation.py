"""BLEU on upper case and typing errors, of a model trained with augmentation and of one without.

    python -m benchmarks.augmentation [--corpus multi30k|europarl] [--recipe small] [--sentences 1000] [key=value ...]

Two data sets of the same pairs, one with `augmentation.upper_case=0.2 augmentation.typos=0.2`. The same recipe trains a
model on each, for the same number of steps. Each translates versions of the test set: as it is, in upper case on both
sides, and with typing errors in the source. These are made in another way than those of the augmentation: every letter
may be left out, swapped with the next, or get a random letter in its place or beside it. They are drawn several times,
since one draw differs from another by half a BLEU, and BLEU is their mean. The loss is the BLEU of the first version
minus that of another.
"""

import argparse
import random
import statistics
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import dragoman
from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import CORPORA, EUROPARL, LANGUAGES, MULTI30K, read_split, split_files
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.augmentation import typos, upper_case
from dragoman.corpus.sources import Languages
from dragoman.decoding import scoring
from dragoman.decoding.line_translator import LineTranslator

AUGMENTATION = ("augmentation.upper_case=0.2", "augmentation.typos=0.2")
CORPUS_PARTS = {"multi30k": (MULTI30K, "valid", "test2016"), "europarl": (EUROPARL, None, "valid")}
"""Name, validation set and test set. Without a validation set, pairs are held out."""
SEEDS = range(23, 29)
"""Of the typing errors."""
LETTERS_PER_ERROR = 40
"""About one word of eight has an error."""
Pairs = list[tuple[str, str]]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--corpus", choices=CORPUS_PARTS, default="multi30k")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--sentences", type=int, default=1000, help="sentences of the test set")
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    parser.add_argument("--folder", type=Path, help="keep the data sets and runs here (default: a temporary folder)")
    parser.add_argument("overrides", nargs="*", help="key=value, for training")
    options = parser.parse_args()
    corpus, valid, test = CORPUS_PARTS[options.corpus]
    sides = (side[: options.sentences] for side in read_split(corpus, test, options.corpora))
    pairs = list(zip(*sides, strict=True))
    with TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        for kind, settings in (("plain", ()), ("augmented", AUGMENTATION)):
            train(folder / kind, corpus, valid, options, settings)
        print_figures("augmentation", measure(folder, pairs), corpus=options.corpus, recipe=options.recipe)


def train(folder: Path, corpus: str, valid: str | None, options: argparse.Namespace, settings: Sequence[str]) -> None:
    corpora, recipe = options.corpora, options.recipe
    evaluation = () if valid is None else ("--valid", ",".join(map(str, split_files(corpus, valid, corpora))))
    run_dragoman("prepare", *split_files(corpus, "train", corpora), *evaluation, "--recipe", recipe, *settings,
                 "--out", folder / "data")  # fmt: skip
    run_dragoman("train", recipe, "--data", folder / "data", "--out", folder / "run", *options.overrides)


def versions(pairs: Pairs) -> dict[str, list[Pairs]]:
    """The test set as it is, and with each change; with typing errors once for each seed."""
    languages, draws = Languages(*LANGUAGES), [random.Random(seed) for seed in SEEDS]
    return {
        "as it is": [pairs],
        "upper case": [[upper_case(pair, languages, draws[0]) for pair in pairs]],
        "typing errors": [[(mistype(source, rng), target) for source, target in pairs] for rng in draws],
        "typing errors as in training": [[typos(pair, languages, rng) for pair in pairs] for rng in draws],
    }


def mistype(text: str, rng: random.Random) -> str:
    """Errors at random letters, of the four kinds that most misspelled words have (Damerau 1964), in equal shares."""
    letters = list(text)
    for place in reversed(range(len(letters))):
        if letters[place].isalpha() and rng.random() < 1 / LETTERS_PER_ERROR:
            other = rng.choice(string.ascii_lowercase)
            letters[place : place + 2] = rng.choice([
                letters[place + 1 : place + 2],
                letters[place : place + 2][::-1],
                [other, *letters[place + 1 : place + 2]],
                [other, *letters[place : place + 2]],
            ])  # fmt: skip
    return " ".join("".join(letters).split())


def measure(folder: Path, pairs: Pairs) -> Iterator[Figure]:
    bleu: dict[str, dict[str, float]] = {"plain": {}, "augmented": {}}
    for kind, found in bleu.items():
        translator = dragoman.load(folder / kind / "run")
        for version, draws in versions(pairs).items():
            found[version] = statistics.mean(score(translator, changed) for changed in draws)
            yield Figure(f"BLEU, {kind}, {version}", f"{found[version]:.1f}", "", found[version])
    for version in list(versions([]))[1:]:
        lost = {kind: found["as it is"] - found[version] for kind, found in bleu.items()}
        ratio = lost["augmented"] / lost["plain"]
        text = f"{lost['plain']:.1f} without, {lost['augmented']:.1f} with: {ratio:.0%}"
        yield Figure(f"BLEU lost by {version}", text, "half", {**lost, "ratio": ratio})


def score(translator: LineTranslator, pairs: Pairs) -> float:
    sources, references = zip(*pairs, strict=True)
    return scoring.score(translator.translate(sources), references, language=LANGUAGES[1]).bleu.value


if __name__ == "__main__":
    main()

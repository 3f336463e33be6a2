"""Noise planted in real text: how much of it each rule and each model finds, and how many good pairs are lost.

    python -m benchmarks.noise [--pairs 20000] [--seed 1] [--end-parts] [--steps 1500]
    python -m benchmarks.noise --forward MODEL --backward MODEL

Half of the pairs are Europarl, half Tatoeba. A fifth of them is replaced by noise of five kinds, as it occurs in text
from the web: sentences that do not belong together, another language on one side, text that was not translated, words
that repeat, and translations of a part. `dragoman prepare` filters the text as users do: by its default rules, also by
language, and by the scores of one model and of two. Without given models, two are trained first, on other pairs.

The thresholds of the rules were chosen on the first 40,000 pairs of each corpus, and the models are trained on the
first 60,000; the noise is planted in later ones. A second table has the share of real pairs, without planted noise,
that each rule drops.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import polib

from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import CORPORA, EUROPARL, MULTI30K, NEWSTEST, TATOEBA, read_split
from benchmarks.reporting import Figure, print_figures, print_row
from dragoman.corpus.cleaning import Cleaner
from dragoman.corpus.dataset import TOKENIZER_FILE, DataSet
from dragoman.corpus.pair_filter import PairFilter
from dragoman.corpus.sources import Languages
from dragoman.settings import CleaningSettings

LANGUAGE_PAIR = Languages("en", "de")
NOISE_SHARE = 0.2
TRAINING_PAIRS = 60_000
FOREIGN_LANGUAGES = ("fr", "es", "nl", "it", "pl", "cs", "sv", "pt")
CATALOGS = Path("/usr/share/locale")
"""Messages of programs: text in languages that the corpora do not have."""
REAL_PARTS = (
    *((EUROPARL, "train"), (EUROPARL, "valid"), (TATOEBA, "train"), (MULTI30K, "valid"), (MULTI30K, "test2016")),
    (NEWSTEST, "newstest2014"),
)
Pair = tuple[str, str]
Corrupt = Callable[[Pair, random.Random], Pair]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice of pairs and of the noise")
    parser.add_argument("--end-parts", action="store_true", help="put the end of the whole side behind a part of it")
    parser.add_argument("--forward", type=Path, help="model from English to German")
    parser.add_argument("--backward", type=Path, help="model from German to English")
    parser.add_argument("--steps", type=int, default=1500, help="steps of the models, if they are trained here")
    parser.add_argument("--recipe", default="tiny", help="recipe of the models, if they are trained here")
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        europarl, tatoeba = (read_pairs(corpus, "train", options.corpora) for corpus in (EUROPARL, TATOEBA))
        models = (options.forward, options.backward)
        if None in models:
            clean = [*europarl[:TRAINING_PAIRS], *tatoeba[:TRAINING_PAIRS]]
            models = train_models(clean, folder, options.recipe, options.steps)
        rng, half = random.Random(options.seed), options.pairs // 2
        unseen = [pair for corpus in (europarl, tatoeba) for pair in rng.sample(corpus[TRAINING_PAIRS:], half)]
        labelled = plant(unseen, rng, end_parts=options.end_parts)
        print_figures("noise", measure(labelled, folder, models), seed=options.seed)
    print_lost(options.corpora)


def read_pairs(corpus: str, split: str, corpora: Path) -> list[Pair]:
    sides = read_split(corpus, split, corpora)
    return list(dict.fromkeys(zip(*([" ".join(line.split()) for line in side] for side in sides), strict=True)))


def train_models(pairs: Sequence[Pair], folder: Path, recipe: str, steps: int) -> tuple[Path, Path]:
    """Small models of both directions, with one tokenizer."""
    files = [folder / "clean.en", folder / "clean.de"]
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in pairs))
    tokenizer = folder / "data-en-de" / TOKENIZER_FILE
    for direction, given in (("en-de", ()), ("de-en", ("--tokenizer", tokenizer))):
        data, run = folder / f"data-{direction}", folder / f"run-{direction}"
        run_dragoman("prepare", *files, "-l", direction, "--recipe", recipe, *given, "--out", data,
                     "tokenizer.vocabulary_size=4000", "cleaning.max_words=20", "corpus.valid_pairs=300")  # fmt: skip
        run_dragoman("train", recipe, "--data", data, "--out", run, f"training.steps={steps}", "evaluation.bleu=false",
                     f"evaluation.every={steps}", "training.label_smoothing=0")  # fmt: skip
    return folder / "run-en-de", folder / "run-de-en"


def plant(pairs: Sequence[Pair], rng: random.Random, *, end_parts: bool = False) -> dict[Pair, str]:
    """The pairs, each with the kind of its noise or "good"."""
    foreign, cleaner = foreign_sentences(), Cleaner(CleaningSettings(), LANGUAGE_PAIR)
    kinds: dict[str, Corrupt] = {
        "mismatched": lambda pair, rng: (pair[0], _similar_target(pair, pairs, rng)),
        "wrong language": lambda pair, rng: wrong_language(pair, rng.choice(pairs), foreign, rng),
        "not translated": not_translated,
        "repeated": repeated,
        "part missing": lambda pair, rng: part_missing(pair, rng, with_end=end_parts),
    }
    labelled: dict[Pair, str] = {}
    for pair in pairs:
        if rng.random() < NOISE_SHARE:
            kind = rng.choice(list(kinds))
            noisy = kinds[kind](pair, rng)
            labelled[cleaner.normalize(*noisy)] = kind
        else:
            labelled.setdefault(cleaner.normalize(*pair), "good")
    return labelled


def _similar_target(pair: Pair, pairs: Sequence[Pair], rng: random.Random) -> str:
    """The target of another pair, the most similar in length of ten."""
    others = [other[1] for other in rng.choices(pairs, k=10) if other[1] != pair[1]]
    return min(others, key=lambda target: abs(len(target) - len(pair[1])))


def wrong_language(pair: Pair, other: Pair, foreign: Sequence[str], rng: random.Random) -> Pair:
    """Both sides swapped, the other side's language on one side, or a third language on one side."""
    match rng.randrange(3 if foreign else 2):
        case 0:
            return pair[1], pair[0]
        case 1:
            return (pair[0], other[0]) if rng.random() < 0.5 else (other[1], pair[1])
        case _:
            text = rng.choice(foreign)
            return (pair[0], text) if rng.random() < 0.5 else (text, pair[1])


def not_translated(pair: Pair, rng: random.Random) -> Pair:
    """The source as the target: as it is, in other case or punctuation, or with some words translated."""
    source, words = pair[0], pair[0].split()
    match rng.randrange(3):
        case 0:
            return source, source
        case 1:
            return source, source.rstrip(".!?").title() + "…"
        case _:
            changed = pair[1].split()[: max(1, len(words) // 6)]
            return source, " ".join([*changed, *words[len(changed) :]])


def repeated(pair: Pair, rng: random.Random) -> Pair:
    """A loop of one to five words in the target, as models make them, or a list of menu entries on both sides."""
    words = pair[1].split()
    if rng.random() < 0.25:
        source, target = (" ".join(side.split()[:2] * rng.randint(5, 9)) for side in pair)
        return source, target
    size, start = rng.randint(1, min(5, len(words))), rng.randrange(len(words))
    loop = words[start : start + size]
    return pair[0], " ".join([*words[: start + len(loop)], *loop * rng.randint(4, 10)])


def part_missing(pair: Pair, rng: random.Random, *, with_end: bool = False) -> Pair:
    """A side of a fifth to a half of its words; with the punctuation of its end, or in the middle of the sentence."""
    side = rng.randrange(2)
    words = pair[side].split()
    kept = " ".join(words[: max(1, int(len(words) * rng.uniform(0.2, 0.5)))])
    if with_end and not pair[side][-1].isalnum():
        kept = kept.rstrip(",;:") + pair[side][-1]
    return (kept, pair[1]) if side == 0 else (pair[0], kept)


def foreign_sentences() -> list[str]:
    """Sentences of program messages in third languages; none if the system has no catalogs."""
    found = []
    for language in FOREIGN_LANGUAGES:
        for path in sorted(CATALOGS.glob(f"{language}/LC_MESSAGES/*.mo")):
            messages = polib.mofile(str(path)).translated_entries()
            texts = (" ".join(message.msgstr.split()) for message in messages if message.msgstr != message.msgid)
            sentences = (text for text in texts if 5 <= text.count(" ") <= 30 and not set("%<>{}\\_|=") & set(text))
            found += list(islice(sentences, 100))
    return found


def measure(labelled: dict[Pair, str], folder: Path, models: tuple[Path, Path]) -> Iterator[Figure]:
    counts = Counter(labelled.values())
    planted = counts.total() - counts["good"]
    yield Figure("pairs; planted noise", f"{counts.total():,}; {planted / counts.total():.1%}", "", dict(counts))
    (folder / "noisy.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in labelled))
    forward, backward = models
    variants: dict[str, tuple[str | Path, ...]] = {
        "default rules": (),
        "and language": ("cleaning.rules=+language",),
        "and the score of a model": ("cleaning.rules=+language", "--score-with", forward),
        "and the agreement of two": (
            "cleaning.rules=+language", "--score-with", forward, "--score-back-with", backward,
        ),
    }  # fmt: skip
    for number, (name, arguments) in enumerate(variants.items()):
        is_kept = prepare(folder / f"data-{number}", folder / "noisy.tsv", arguments)
        kept = Counter(kind for pair, kind in labelled.items() if is_kept(pair))
        found = {kind: 1 - kept[kind] / counts[kind] for kind in counts}
        total = 1 - (kept.total() - kept["good"]) / planted
        target = ("90 %", "at most 5 %") if number == len(variants) - 1 else ("", "")
        yield Figure(f"{name}: noise found", f"{total:.1%}", target[0], total)
        by_kind = ", ".join(f"{kind} {share:.1%}" for kind, share in sorted(found.items()) if kind != "good")
        yield Figure(f"{name}: by kind", by_kind, "", found)
        yield Figure(f"{name}: good pairs lost", f"{found['good']:.2%}", target[1], found["good"])


def prepare(out: Path, text: Path, arguments: Sequence[str | Path]) -> Callable[[Pair], bool]:
    """Filter a text; return whether a pair of it was kept."""
    run_dragoman("prepare", text, "-l", "en-de", "--out", out, "corpus.valid_pairs=0", "tokenizer.vocabulary_size=4000",
                 *arguments)  # fmt: skip
    data = DataSet(out)
    pairs, encode = data.pairs("train"), data.tokenizer.encode
    kept = {tuple(tuple(side[:-1].tolist()) for side in pairs[index]) for index in range(len(pairs))}
    return lambda pair: tuple(tuple(encode(side)) for side in pair) in kept


def print_lost(corpora: Path) -> None:
    """Print the share of real pairs that each rule drops."""
    print_row("real pairs", "number", "dropped", "by rule")
    print_row("---", "---", "---", "---")
    rules = PairFilter(CleaningSettings(rules="+language"), Languages("en", "de"))
    parts = (
        (EUROPARL, "train"),
        (EUROPARL, "valid"),
        (TATOEBA, "train"),
        (MULTI30K, "valid"),
        (NEWSTEST, "newstest2014"),
    )
    for corpus, split in parts:
        pairs = read_pairs(corpus, split, corpora)[TRAINING_PAIRS if split == "train" else 0 :][:20_000]
        dropped = Counter(rule for pair in pairs if (rule := rules(*pair)))
        by_rule = ", ".join(f"{rule} {number / len(pairs):.3%}" for rule, number in dropped.most_common())
        print_row(f"{corpus} {split}", f"{len(pairs):,}", f"{dropped.total() / len(pairs):.2%}", by_rule)


if __name__ == "__main__":
    main()

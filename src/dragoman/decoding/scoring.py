"""BLEU and chrF by sacreBLEU, with the signatures that make scores comparable.

A difference between two systems may be due to the choice of the test set. `compare` tests its significance by
resampling the test set many times (paired bootstrap, Koehn 2004); `measure_gain` gives its interval, and `measure_bleu`
that of one system's score.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError
from dragoman.telemetry.score_gains import Gain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

RESAMPLES = 1000
SIGNIFICANT = 0.05
# Languages without spaces between words need their own tokenizer; two of them are optional packages of sacreBLEU.
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_OPTIONAL_PACKAGES = {"ja-mecab": "MeCab", "ko-mecab": "mecab_ko"}


@dataclass(frozen=True)
class Measure:
    """One score, and the signature of its computation."""

    name: str
    value: float
    """From 0 to 100; higher is better."""
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


@dataclass(frozen=True)
class Score:
    """The scores of a set of translations."""

    bleu: Measure
    chrf: Measure
    sentences: int


@dataclass(frozen=True)
class Difference:
    """One metric of two systems on the same sentences."""

    name: str
    baseline: float
    baseline_margin: float
    """Half the width of the 95 % confidence interval."""
    system: float
    system_margin: float
    p_value: float
    """Probability of a difference this large between systems of equal quality."""
    signature: str

    @property
    def gain(self) -> float:
        return self.system - self.baseline

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT


@dataclass(frozen=True)
class Comparison:
    """A system compared with a baseline."""

    bleu: Difference
    chrf: Difference


def score(translations: Sequence[str], *references: Sequence[str], language: str | None = None) -> Score:
    """BLEU and chrF against one or more sets of references, as computed by sacreBLEU's command line.

    `language` is that of the translations: for some, BLEU uses another tokenizer, named in its signature.
    """
    _check_aligned(translations, references)
    bleu, chrf = (
        Measure(result.name, result.score, str(metric.get_signature()))
        for metric in _metrics(language).values()
        for result in [metric.corpus_score(translations, references)]
    )
    return Score(bleu, chrf, len(translations))


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    *references: Sequence[str],
    language: str | None = None,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Test whether a system differs significantly from a baseline, by sacreBLEU's paired bootstrap.

    The samples are the same each time; the environment variable SACREBLEU_SEED changes them.
    """
    from sacrebleu.significance import PairedTest

    _check_aligned(baseline, references)
    _check_aligned(system, references)
    systems = [("baseline", baseline), ("system", system)]
    test = PairedTest(systems, _metrics(language), references, test_type="bs", n_samples=resamples)
    signatures, results = test()
    bleu, chrf = (_difference(name, results[name], str(signature)) for name, signature in signatures.items())
    return Comparison(bleu, chrf)


def measure_gain(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str], language: str | None = None
) -> Gain:
    """The difference in BLEU from a baseline, with its 95 % interval by paired bootstrap over the sentences."""
    return Gain(*_bootstrap((baseline, system), references, language, lambda scores: scores[1] - scores[0]))


def measure_bleu(
    translations: Sequence[str], references: Sequence[str], language: str | None = None
) -> tuple[float, float, float]:
    """BLEU, and both ends of its 95 % interval by bootstrap over the sentences."""
    return _bootstrap((translations,), references, language, lambda scores: scores[0])


def _bootstrap(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    language: str | None,
    statistic: Callable[[list[float]], float],
) -> tuple[float, float, float]:
    """A statistic of the BLEU of systems, and both ends of its 95 % interval. A sample is the same for all systems."""
    import numpy as np

    for texts in systems:
        _check_aligned(texts, [references])
    counts = [_count_matches(tuple(texts), tuple(references), language) for texts in systems]
    draws = np.random.default_rng(0).integers(len(references), size=(RESAMPLES, len(references)))
    found = sorted(statistic([_bleu(each[drawn].sum(0)) for each in counts]) for drawn in draws)
    outside = RESAMPLES // 40
    return statistic([_bleu(each.sum(0)) for each in counts]), found[outside], found[-outside - 1]


def _bleu(counts: "IntArray") -> float:
    """BLEU of the summed counts of sentences."""
    from sacrebleu.metrics.bleu import BLEU

    *matches, system_length, reference_length = counts.tolist()
    score = BLEU.compute_bleu(matches[:4], matches[4:], system_length, reference_length, smooth_method="exp")
    return float(score.score)


@lru_cache(maxsize=8)  # A run compares with the same baseline at each evaluation.
def _count_matches(translations: tuple[str, ...], references: tuple[str, ...], language: str | None) -> "IntArray":
    """For each sentence: matching n-grams of the four orders, all n-grams, and the lengths of both texts."""
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=_tokenizer(language), effective_order=True)  # As sacreBLEU asks for single sentences.
    found = [metric.sentence_score(text, [reference]) for text, reference in zip(translations, references, strict=True)]
    rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in found]
    return np.array(rows, dtype=np.int64)


def _difference(name: str, results: Sequence[Any], signature: str) -> Difference:
    before, after = results
    # sacreBLEU gives equal scores the smallest possible p-value.
    p_value = 1.0 if before.score == after.score else float(after.p_value)
    return Difference(name, before.score, float(before.ci), after.score, float(after.ci), p_value, signature)


def _metrics(language: str | None) -> dict[str, Any]:
    """New metric objects for each use: sacreBLEU's keep state."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"BLEU": BLEU(tokenize=_tokenizer(language)), "chrF": CHRF()}


def _tokenizer(language: str | None) -> str:
    """sacreBLEU's tokenizer for the language; characters if it is not installed."""
    name = _TOKENIZERS.get((language or "").split("-")[0].lower(), "13a")
    package = _OPTIONAL_PACKAGES.get(name)
    return "char" if package is not None and importlib.util.find_spec(package) is None else name


def _check_aligned(translations: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not references:
        raise DragomanError("There are no references to score against: give at least one set.")
    if not translations:
        raise DragomanError("There are no translations to score: give at least one line.")
    for reference in references:
        if len(reference) != len(translations):
            raise DragomanError(
                f"There are {len(translations):,} translations but {len(reference):,} references: "
                "give one reference line for each translation."
            )

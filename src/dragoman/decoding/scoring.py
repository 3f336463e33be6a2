"""How good translations are: BLEU and chrF by sacreBLEU, with the signatures that make numbers comparable.

A difference between two systems may be luck of the test set. `compare` asks how much of it would remain on other
sentences, by drawing the test set anew many times (paired bootstrap, Koehn 2004).
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.errors import DragomanError

RESAMPLES = 1000
SIGNIFICANT = 0.05
# Languages without spaces between words need a tokenizer of their own; sacreBLEU has two of them only as extras.
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_EXTRAS = {"ja-mecab": "MeCab", "ko-mecab": "mecab_ko"}


@dataclass(frozen=True)
class Measure:
    """One number and the signature that says how it was computed."""

    name: str
    value: float
    """From 0 to 100; more is better."""
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


@dataclass(frozen=True)
class Score:
    """The quality of a set of translations."""

    bleu: Measure
    chrf: Measure
    sentences: int


@dataclass(frozen=True)
class Difference:
    """One measure of two systems on the same sentences."""

    name: str
    baseline: float
    baseline_margin: float
    """Half the width of the 95 % confidence interval."""
    system: float
    system_margin: float
    p_value: float
    """How likely a difference this large is where there is none."""
    signature: str

    @property
    def gain(self) -> float:
        return self.system - self.baseline

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline."""

    bleu: Difference
    chrf: Difference


def score(translations: Sequence[str], *references: Sequence[str], language: str | None = None) -> Score:
    """BLEU and chrF against one or more sets of references, as sacreBLEU's command line computes them.

    `language` is that of the translations: for a few, BLEU cuts words differently, as its signature says.
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
    """Whether a system is better than a baseline by more than luck, by sacreBLEU's paired bootstrap.

    The draws are the same each time; the environment's SACREBLEU_SEED chooses others.
    """
    from sacrebleu.significance import PairedTest

    _check_aligned(baseline, references)
    _check_aligned(system, references)
    systems = [("baseline", baseline), ("system", system)]
    test = PairedTest(systems, _metrics(language), references, test_type="bs", n_samples=resamples)
    signatures, results = test()
    bleu, chrf = (_difference(name, results[name], str(signature)) for name, signature in signatures.items())
    return Comparison(bleu, chrf)


def _difference(name: str, results: Sequence[Any], signature: str) -> Difference:
    before, after = results
    # sacreBLEU's count leaves a difference of nothing at all with the smallest p-value there is.
    p_value = 1.0 if before.score == after.score else float(after.p_value)
    return Difference(name, before.score, float(before.ci), after.score, float(after.ci), p_value, signature)


def _metrics(language: str | None) -> dict[str, Any]:
    """sacreBLEU's objects remember what they saw, so that each use needs its own."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"BLEU": BLEU(tokenize=_tokenizer(language)), "chrF": CHRF()}


def _tokenizer(language: str | None) -> str:
    """sacreBLEU's choice for the language; where that is not installed, characters, which need nothing."""
    name = _TOKENIZERS.get((language or "").split("-")[0].lower(), "13a")
    extra = _EXTRAS.get(name)
    return "char" if extra is not None and importlib.util.find_spec(extra) is None else name


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

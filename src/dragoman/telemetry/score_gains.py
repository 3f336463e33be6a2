"""Gains of a fine-tuned model over the model that the run began with, by evaluation set, and the trade-off of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

VALIDATION = "valid"
"""Name of the validation set beside those of `--also-evaluate`."""


@dataclass(frozen=True)
class Gain:
    """Difference in BLEU from a baseline on the same sentences, with its 95 % interval by paired bootstrap."""

    bleu: float
    low: float
    high: float

    @property
    def is_loss(self) -> bool:
        """True if the model has become worse by more than the choice of the sentences explains."""
        return self.high < 0

    @property
    def is_significant(self) -> bool:
        return self.low > 0 or self.is_loss

    def __str__(self) -> str:
        if self.is_significant:
            verb, (low, high) = ("lost", (-self.high, -self.low)) if self.is_loss else ("gained", (self.low, self.high))
            # An end of 0.0 would look as if there might be no change.
            decimals = next(number for number in count(1) if float(f"{low:.{number}f}"))
            return f"{verb} {abs(self.bleu):.{decimals}f} BLEU ({low:.{decimals}f} to {high:.{decimals}f})"
        return f"showed no significant change ({self.bleu:+.1f} BLEU, {self.low:+.1f} to {self.high:+.1f})"


def read_gains(recorded: Mapping[str, Mapping[str, float]]) -> dict[str, Gain]:
    """The gains in an event, by set; the validation set comes first."""
    return {name: Gain(**gain) for name, gain in recorded.items()}


def describe_gains(gains: Mapping[str, Gain]) -> str:
    """All gains in words: `gained 5.1 BLEU (4.2 to 6.0) on the validation set, lost 1.3 BLEU (...) on news`."""
    return ", ".join(
        f"{gain} on {'the validation set' if name == VALIDATION else name}" for name, gain in gains.items()
    )


def net_gain(gains: Mapping[str, Gain]) -> float | None:
    """BLEU gained on the validation set less BLEU lost on all other sets; None without other sets.

    A loss that is not significant counts as none, and a gain on another set does not make up for anything.
    """
    if VALIDATION not in gains or len(gains) < 2:
        return None
    return gains[VALIDATION].bleu - sum(_losses(gain for name, gain in gains.items() if name != VALIDATION))


def _losses(gains: Iterable[Gain]) -> Iterable[float]:
    return (-gain.bleu for gain in gains if gain.is_loss)

"""The learning curve: what more data brings, from runs on parts of a data set."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dragoman.insight.validation_curve import Forecast, extrapolate
from dragoman.number_format import count, percent

MORE_DATA = 2
"""Times as many pairs that the forecast is for."""
RUN_NOISE = 0.005
"""Part of the loss by which two runs on the same number of pairs may differ: in their pairs, or in the seed."""
NOTICEABLE = 0.02
"""Part of the loss by which it must fall for more data to be called worth it."""


@dataclass(frozen=True)
class CurvePart:
    """A run on a part of the pairs, at its evaluation with the lowest validation loss."""

    pairs: int
    nll: float
    bleu: float | None
    run: str


@dataclass(frozen=True)
class LearningCurve:
    """Results by number of pairs, the smallest part first."""

    parts: Sequence[CurvePart]

    def forecast(self, pairs: int) -> Forecast | None:
        """The validation loss with more pairs; None if it does not fall with their number, or runs are too few."""
        losses = [part.nll for part in self.parts]
        found = extrapolate([part.pairs for part in self.parts], losses, pairs)
        if found is None:
            return None
        # More data does not raise the loss, but the runs themselves differ a little.
        noise, last = RUN_NOISE * losses[-1], losses[-1]
        low = min(found.low, self._unbent(pairs), last)
        return replace(found, value=min(found.value, last), low=low - noise, high=min(found.high, last) + noise)

    def _unbent(self, pairs: int) -> float:
        """The loss if each doubling of the pairs brought as much as the last one.

        A fitted curve flattens, as learning curves do in the end. While pairs are so few that a model memorises
        them, the loss falls by about as much with each doubling.
        """
        before, last = self.parts[-2:]
        slope = (last.nll - before.nll) / math.log(last.pairs / before.pairs)
        return last.nll + slope * math.log(pairs / last.pairs)

    @property
    def more_data(self) -> Forecast | None:
        """The forecast for twice the pairs of the largest run."""
        return self.forecast(MORE_DATA * self.parts[-1].pairs)

    def describe(self) -> str:
        """What more data would bring, in words."""
        last, forecast = self.parts[-1], self.more_data
        now = f"With {count(last.pairs)} pairs the validation loss is {last.nll:.3f}"
        if len(self.parts) < 3:
            return f"{now}. A forecast needs runs on at least three parts of the data."
        if forecast is None:
            return (
                f"{now}, and it does not fall with the number of pairs: more data of this kind would not help this "
                "model. Train it longer, or train a larger one."
            )
        gain = 1 - forecast.value / last.nll
        verdict = "would lower it" if gain >= NOTICEABLE else "would hardly change it: it would be lower"
        return (
            f"{now}. Twice as many {verdict} by {percent(max(gain, 0.0))}, to about {forecast.value:.3f} "
            f"({forecast.low:.3f} to {forecast.high:.3f})."
        )

    def to_json(self) -> dict[str, Any]:
        forecast = self.more_data
        return {
            "parts": [asdict(part) for part in self.parts],
            "twice_as_many_pairs": None
            if forecast is None
            else {"pairs": forecast.step, "nll": forecast.value, "low": forecast.low, "high": forecast.high},
            "text": self.describe(),
        }

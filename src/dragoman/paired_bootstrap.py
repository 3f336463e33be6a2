"""Significance of the difference between the kept translations of two runs, for `report` and `watch`."""

from functools import lru_cache

from dragoman.decoding import scoring
from dragoman.insight.compared_run import Significance
from dragoman.telemetry.kept_translations import KeptTranslations


@lru_cache(maxsize=64)  # A live page asks again with each update.
def bootstrap(first: KeptTranslations, second: KeptTranslations) -> Significance:
    """Test translations of the same sentences by paired bootstrap."""
    found = scoring.compare(
        list(first.translations), list(second.translations), list(first.references), language=first.language
    )
    return Significance(found.bleu.p_value, found.chrf.p_value)

from random import Random

from dragoman.paired_bootstrap import bootstrap
from dragoman.telemetry.kept_translations import KeptTranslations

RANDOM = Random(1)
REFERENCES = tuple(" ".join(RANDOM.choices(["a", "b", "c", "d", "e", "f", "g", "h"], k=12)) for _ in range(60))


def translated(errors: int) -> KeptTranslations:
    """Translations of which every so many sentences lack their last words."""
    lines = [line if n % 10 >= errors else line[:9] for n, line in enumerate(REFERENCES)]
    return KeptTranslations(10, 50.0, "de", REFERENCES, tuple(lines))


def test_a_clear_difference_is_significant_and_none_is_not():
    assert bootstrap(translated(0), translated(5)).bleu_p_value < 0.01
    assert bootstrap(translated(3), translated(3)).bleu_p_value == 1.0


def test_the_same_translations_are_tested_once():
    bootstrap.cache_clear()
    first = bootstrap(translated(1), translated(2))
    assert bootstrap(translated(1), translated(2)) is first
    assert bootstrap.cache_info().hits == 1

"""Scores of given pairs by models: how probable a model finds the target, and how far two directions agree."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.corpus.language_codes import same_language
from dragoman.corpus.sources import Languages
from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.translator_loading import load
from dragoman.errors import DragomanError
from dragoman.settings import RuleName

MAX_SIDE_TOKENS = 512
"""Tokens of a side that are scored; the rest of a longer one is left out."""
PAIRS_AT_ONCE = 4096

Values = npt.NDArray[np.float32]


class ModelPairScorer:
    """Scores pairs by a model, or by one for each direction."""

    def __init__(self, forward: LineTranslator, backward: LineTranslator | None = None, *, identity: str = "") -> None:
        self._forward, self._backward, self._identity = forward, backward, identity

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def rule(self) -> RuleName:
        return "score" if self._backward is None else "agreement"

    def score(self, pairs: Sequence[tuple[str, str]]) -> Values:
        """Minus the cross-entropy of the target in nats per token.

        With a backward model, minus the dual conditional cross-entropy (Junczys-Dowmunt 2018): the mean of both
        cross-entropies, plus their difference.
        """
        forward = cross_entropies(self._forward, pairs)
        if self._backward is None:
            return -forward
        backward = cross_entropies(self._backward, [(target, source) for source, target in pairs])
        dual: Values = (forward + backward) / 2 + np.abs(forward - backward)
        return -dual


def cross_entropies(translator: LineTranslator, pairs: Sequence[tuple[str, str]]) -> Values:
    """Minus the mean log-probability of each target's tokens, the end token included."""
    tokenizer, most = translator.tokenizer, MAX_SIDE_TOKENS - 1
    means: list[float] = []
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        encoded = [
            ((*tokenizer.encode(source)[:most], tokenizer.eos_id), tokenizer.encode(target, "target")[:most])
            for source, target in pairs[first : first + PAIRS_AT_ONCE]
        ]
        means += [-sum(values) / len(values) for values in translator.log_probabilities(encoded)]
    return np.array(means, np.float32)


def load_scorer(forward: Path, backward: Path | None, languages: Languages) -> ModelPairScorer:
    """Load the models, and check that they translate in the directions of the pairs."""
    reversed_languages = Languages(languages.target, languages.source)
    wanted = [(forward, "--score-with", languages)]
    if backward is not None:
        wanted.append((backward, "--score-back-with", reversed_languages))
    translators, problems, files = [], [], []
    for path, option, direction in wanted:
        translator = load(path)
        found = translator.languages
        if found is not None and not (
            same_language(found.source, direction.source) and same_language(found.target, direction.target)
        ):
            problems.append(
                f"{option} {path} translates from {found.source} to {found.target}: give a model from "
                f"{direction.source} to {direction.target}."
            )
        translators.append(translator)
        files += _fingerprint(find_model(path))
    if problems:
        raise DragomanError("\n".join(problems))
    return ModelPairScorer(*translators, identity=hashlib.sha256(repr(files).encode()).hexdigest())


def _fingerprint(model: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of each file of a model folder."""
    files = sorted(path for path in model.glob("*") if path.is_file())
    return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]

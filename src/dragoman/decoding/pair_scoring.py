"""Scores of given pairs by models: how much a side tells about the other, and how far two directions agree.

The cross-entropy of a target depends more on the target than on its source: names and rare words are improbable beside
any source. So it is compared with the cross-entropy of the same target beside another source of similar length. A small
model is then enough to tell good pairs from mismatched ones.
"""

import hashlib
import zlib
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
DISAGREEMENT_WEIGHT = 0.25
"""Chosen with small models on pairs with planted noise: more weight finds more parts of translations, and loses more
good pairs."""

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
        """The nats per target token that the source saves, against the source of another pair; infinite without one.

        It is the mean of those of all tokens and of those of the half that the source tells less about, so that a
        translation of a part scores lower. With a backward model, the lower value of both directions, less a part of
        the difference of their cross-entropies, as in dual conditional cross-entropy (Junczys-Dowmunt 2018).
        """
        forward, forward_gain = _entropies_and_gains(self._forward, pairs)
        if self._backward is None:
            return forward_gain
        backward, backward_gain = _entropies_and_gains(self._backward, [(target, source) for source, target in pairs])
        score: Values = np.minimum(forward_gain, backward_gain) - DISAGREEMENT_WEIGHT * np.abs(forward - backward)
        return score


def _entropies_and_gains(translator: LineTranslator, pairs: Sequence[tuple[str, str]]) -> tuple[Values, Values]:
    """Cross-entropies of the targets, and how much the sources save, against the sources of other pairs."""
    other_source = neighbours([source for source, _ in pairs])
    own = _log_probabilities(translator, pairs)
    entropies = _entropies(own)
    if len(other_source) < 2:
        return entropies, np.full(len(pairs), np.inf, np.float32)  # Nothing speaks against them.
    others = _log_probabilities(translator, [(other_source[source], target) for source, target in pairs])
    gains = [_gain(each - other) for each, other in zip(own, others, strict=True)]
    return entropies, np.array(gains, np.float32)


def _gain(saved: Values) -> float:
    """The mean of what is saved at each token, and of the half with less."""
    middle = len(saved) // 2
    less = min(saved[: max(1, middle)].mean(), saved[middle:].mean())
    return float(saved.mean() + less) / 2


def neighbours(texts: Sequence[str]) -> dict[str, str]:
    """For each text another one of similar length; itself if there is no other."""
    distinct = sorted(set(texts), key=lambda text: (len(text), zlib.crc32(text.encode())))
    return dict(zip(distinct, [*distinct[1:], *distinct[-2:][:1]], strict=True))


def cross_entropies(translator: LineTranslator, pairs: Sequence[tuple[str, str]]) -> Values:
    """Minus the mean log-probability of each target's tokens, the end token included."""
    return _entropies(_log_probabilities(translator, pairs))


def _entropies(log_probabilities: Sequence[Values]) -> Values:
    return np.array([-each.mean() for each in log_probabilities], np.float32)


def _log_probabilities(translator: LineTranslator, pairs: Sequence[tuple[str, str]]) -> list[Values]:
    """Of each target's tokens, the end token included."""
    tokenizer, most = translator.tokenizer, MAX_SIDE_TOKENS - 1
    found: list[Values] = []
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        encoded = [
            ((*tokenizer.encode(source)[:most], tokenizer.eos_id), tokenizer.encode(target, "target")[:most])
            for source, target in pairs[first : first + PAIRS_AT_ONCE]
        ]
        found += [np.array(values, np.float32) for values in translator.log_probabilities(encoded)]
    return found


def load_scorer(forward: Path, backward: Path | None, languages: Languages) -> ModelPairScorer:
    """Load the models, and check that they translate in the directions of the pairs."""
    wanted = [(forward, "--score-with", languages)]
    if backward is not None:
        wanted.append((backward, "--score-back-with", languages.reversed))
    translators, problems, files = [], [], []
    for path, option, direction in wanted:
        translator = load(path)
        problems += direction_problems(option, path, translator.languages, direction)
        translators.append(translator)
        files += _fingerprint(find_model(path))
    if problems:
        raise DragomanError("\n".join(problems))
    return ModelPairScorer(*translators, identity=hashlib.sha256(repr(files).encode()).hexdigest())


def direction_problems(option: str, model: Path, found: Languages | None, wanted: Languages) -> list[str]:
    """A sentence with a remedy if a model is known to translate in another direction."""
    if found is None or (same_language(found.source, wanted.source) and same_language(found.target, wanted.target)):
        return []
    return [
        f"{option} {model} translates from {found.source} to {found.target}: give a model from {wanted.source} to "
        f"{wanted.target}."
    ]


def _fingerprint(model: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of each file of a model folder."""
    files = sorted(path for path in model.glob("*") if path.is_file())
    return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]

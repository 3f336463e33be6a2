"""Scores by evaluation set: the validation set, and beside it the sets of `--also-evaluate`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.telemetry.score_gains import VALIDATION

SCORES = ("loss", "bleu", "chrf")


def compare_sets(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first, best and last scores on each set, from the summaries of evaluations.

    The best evaluation of a set is that with the highest BLEU; without BLEU, that with the lowest loss. Empty if
    there is only one set, and no gain since the model that the run began with.
    """
    names = dict.fromkeys(name for done in evaluations for name in done["sets"])
    if not names and not any(done["gains"] for done in evaluations):
        return []
    by_set = {"validation": [_scores(done, done, VALIDATION) for done in evaluations]}
    by_set |= {
        name: [_scores(done, done["sets"][name], name) for done in evaluations if name in done["sets"]]
        for name in names
    }
    return [
        {"name": name, "evaluation": when, **scores}
        for name, done in by_set.items()
        for when, scores in (("first", done[0]), ("best", max(done, key=_rank)), ("last", done[-1]))
    ]


def _scores(done: Mapping[str, Any], scores: Mapping[str, Any], name: str) -> dict[str, Any]:
    gain = done["gains"].get(name)
    text = None if gain is None else f"{gain['bleu']:+.1f} ({gain['low']:+.1f} to {gain['high']:+.1f})"
    return {"step": done["step"], **{key: scores[key] for key in SCORES}, "gain": text}


def _rank(scores: Mapping[str, Any]) -> tuple[float, float]:
    """Higher is better. Scores that are not known are the worst."""
    bleu, loss = scores["bleu"], scores["loss"]
    return -math.inf if bleu is None else bleu, -math.inf if loss is None else -loss

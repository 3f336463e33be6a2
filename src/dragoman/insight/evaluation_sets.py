"""Scores by evaluation set: the validation set, and beside it the sets of `--also-evaluate`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

SCORES = ("loss", "bleu", "chrf")


def compare_sets(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first, best and last scores on each set, from the summaries of evaluations; empty if there is only one set.

    The best evaluation of a set is that with the highest BLEU; without BLEU, that with the lowest loss.
    """
    names = dict.fromkeys(name for done in evaluations for name in done["sets"])
    if not names:
        return []
    by_set = {"validation": [_scores(done, done) for done in evaluations]}
    by_set |= {
        name: [_scores(done, done["sets"][name]) for done in evaluations if name in done["sets"]] for name in names
    }
    return [
        {"name": name, "evaluation": when, **scores}
        for name, done in by_set.items()
        for when, scores in (("first", done[0]), ("best", max(done, key=_rank)), ("last", done[-1]))
    ]


def _scores(done: Mapping[str, Any], scores: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": done["step"], **{key: scores[key] for key in SCORES}}


def _rank(scores: Mapping[str, Any]) -> tuple[float, float]:
    """Higher is better. Scores that are not known are the worst."""
    bleu, loss = scores["bleu"], scores["loss"]
    return -math.inf if bleu is None else bleu, -math.inf if loss is None else -loss

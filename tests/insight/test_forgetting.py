from collections.abc import Sequence
from dataclasses import replace

import pytest

from dragoman.events import EvaluationDone
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.run_history import RunHistory, build_history

from .synthetic_runs import power_law, synthetic_run
from .test_diagnoses import diagnosis, rising, warnings

FORGETTING = (3.0, 2.5, 2.2, 2.3, 2.45, 2.6, 2.8)


def evaluated_on_news(losses: Sequence[float | None], **changes) -> RunHistory:
    """A run with these losses on another set, one for each evaluation."""
    remaining = iter(losses)
    recorded = [
        replace(event, sets={"news": {"nll": next(remaining), "bleu": 30.0 - event.step / 100}})
        if isinstance(event, EvaluationDone)
        else event
        for event in synthetic_run(40 * len(losses), **changes)
    ]
    return build_history(recorded)


def test_a_set_that_gets_worse_while_the_validation_set_gets_better_is_forgotten():
    history = evaluated_on_news(FORGETTING)
    found = diagnosis(history, "forgetting")
    assert found.text.startswith(
        "Yes, since step 120: the loss on news rose from 2.200 to 2.800, while the validation loss fell from "
    )
    assert warnings(history) == {"forgetting"}
    assert "--data old@0.3" in found.remedy
    assert "news BLEU 28.8, 27.2 now; validation BLEU " in found.evidence[0]


@pytest.mark.parametrize(
    ("losses", "changes"),
    [
        ((3.0, 2.5, 2.2, 2.1, 2.05, 2.04, 2.03), {}),
        ((3.0, 2.5, 2.2, 2.21, 2.19, 2.21, 2.2), {}),
        (FORGETTING[:4], {}),
        ((3.0, 2.5, None, 2.4, 2.3, None, None), {}),
        (FORGETTING, {"valid_loss": rising, "train_loss": power_law}),
    ],
)
def test_sets_that_improve_or_scatter_or_get_worse_with_the_validation_set_are_not_forgotten(losses, changes):
    assert "forgetting" not in {found.key for found in diagnose(evaluated_on_news(losses, **changes))}

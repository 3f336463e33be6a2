"""Runs that began with a model: labelled curves, and what is said of them."""

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.events import CheckpointsAveraged, EvaluationDone
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.fine_tuning import answer_gains, find_trade_off
from dragoman.insight.forgetting import diagnose_forgetting
from dragoman.insight.loss_forecast import forecast_loss
from dragoman.insight.report_writer import to_markdown
from dragoman.insight.run_history import RunHistory, build_history
from dragoman.insight.run_result import find_lowest_loss, find_result
from dragoman.insight.run_summary import summarize

from .synthetic_runs import FINE_TUNED, PRICED, fine_tuned_run, synthetic_run

ADAPTED = (2.0, 1.7, 1.55, 1.48, 1.45, 1.44, 1.435)
OVERFITTED = (2.0, 1.6, 1.5, 1.54, 1.62, 1.72, 1.83)
DAMAGED = (2.0, 2.6, 2.4, 2.25, 2.15, 2.1, 2.08)
RISEN = (2.0, 2.05, 2.12, 2.2, 2.3, 2.4, 2.5)


def history_of(losses: Sequence[float], **changes) -> RunHistory:
    return build_history(fine_tuned_run(losses, **changes))


def found(history: RunHistory) -> dict[str, str]:
    """The texts of all warnings by key."""
    return {answer.key: answer.text for answer in (*diagnose(history), *answer_all(history)) if answer.is_warning}


def answer(history: RunHistory, key: str):
    return next(each for each in answer_all(history) if each.key == key)


def test_the_report_has_a_section_about_fine_tuning():
    history = history_of(ADAPTED, news=(30, 29.9, 29.8, 28, 25, 23, 22))
    markdown = to_markdown({"runs": [summarize(history, 1.7e9)], "comparison": None})
    assert "## Fine-tuning\n\n### What was gained and lost by fine-tuning?" in markdown
    assert "| news | last | 240 | 3.000 | 22.0 | - | -8.0 (-8.3 to -7.7) |" in markdown
    assert "## Fine-tuning" not in to_markdown(
        {"runs": [summarize(build_history(synthetic_run(80)), 1.7e9)], "comparison": None}
    )


def overview(history: RunHistory) -> dict[str, str]:
    return summarize(history, 1.7e9)["overview"]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (ADAPTED, set()),
        (ADAPTED[:3], set()),
        (OVERFITTED, {"overfitting"}),
        (OVERFITTED[:6], {"overfitting"}),
        (DAMAGED, {"worsened"}),
        (RISEN, {"worsened", "overfitting"}),
        (RISEN[:5], {"worsened", "overfitting"}),
    ],
)
def test_labelled_curves_are_diagnosed_as_what_they_are(losses, expected):
    assert found(history_of(losses)).keys() == expected


@settings(max_examples=20)
@given(
    start=st.floats(1.0, 4.0),
    gained=st.floats(0.05, 0.5),
    rate=st.floats(0.3, 2.0),
    rises_by=st.floats(0.03, 0.5),
    turn=st.integers(2, 7),
    noise=st.lists(st.floats(-0.001, 0.001), min_size=11, max_size=11),
)
def test_a_curve_that_falls_and_turns_overfits_from_its_turn_on_and_one_that_only_falls_does_not(
    start, gained, rate, rises_by, turn, noise
):
    falling = [start * (1 - gained * (1 - math.exp(-rate * n)) + noise[n]) for n in range(11)]
    assert found(history_of(falling)).keys() == set()
    lowest = falling[turn] - 0.01 * start
    turned = [*falling[:turn], *(lowest + rises_by * start * n / 4 for n in range(11 - turn))]
    text = found(history_of(turned))
    assert text.keys() == {"overfitting"}
    assert text["overfitting"].startswith(f"Yes, since step {40 * turn}:")


@settings(max_examples=20)
@given(losses=st.lists(st.floats(1e-3, 12.0), min_size=1, max_size=12), linear=st.booleans(), ends=st.booleans())
def test_any_losses_can_be_summarized(losses, linear, ends):
    policy = f"schedule.policy={'linear' if linear else 'constant'}"
    history = history_of([*losses, losses[-1]], overrides=(policy,), ended="finished" if ends else None)
    assert json.dumps(summarize(history, 1.7e9))


def test_the_point_at_step_0_changes_no_forecast():
    recorded = fine_tuned_run(ADAPTED, ended=None, total_steps=400)
    without = [event for event in recorded if not (isinstance(event, EvaluationDone) and event.step == 0)]
    assert forecast_loss(build_history(recorded), 400) == forecast_loss(build_history(without), 400)
    assert answer(build_history(recorded), "trained").text == answer(build_history(without), "trained").text


def test_the_overview_says_where_the_run_came_from_and_what_it_gained_and_lost():
    how = overview(history_of(ADAPTED, news=(30, 29.5, 28, 27, 26, 26, 26)))["how"]
    assert "It began with models/opus (MarianMT, en-de), whose architecture and tokenizer it has." in how
    assert how.endswith(
        "Step 240 gained 5.6 BLEU (5.3 to 5.9) on the validation set, lost 4.0 BLEU (3.7 to 4.3) on news."
    )
    assert "began" not in overview(build_history(synthetic_run(200)))["how"]


def test_a_run_that_made_the_model_worse_says_so_and_what_to_change():
    history = history_of(DAMAGED)
    said = overview(history)
    assert (
        "Nothing was gained so far: the starting model is still the best (BLEU 20.0, validation loss 2.000)."
        in said["how"]
    )
    assert said["limit"].startswith(
        "Fine-tuning made the model worse: the starting model is the best; the best later one"
    )
    assert said["advice"].startswith(
        "Use `checkpoints/best-bleu` (step 0, the starting model, BLEU 20.0, validation loss 2.000). For the next run: "
        "lower fine_tuning.learning_rate (now 0.0002)"
    )
    assert find_result(history).step == 0
    assert find_lowest_loss(history).step == 240


def test_a_running_run_may_recover_from_damage_for_some_evaluations():
    assert found(history_of(DAMAGED[:3], ended=None, total_steps=400)) == {}
    assert found(history_of(DAMAGED[:4], ended=None, total_steps=400)).keys() == {"worsened"}


def test_without_bleu_the_losses_tell():
    recorded = [
        event
        if not isinstance(event, EvaluationDone)
        else EvaluationDone(**{**vars(event), "bleu": None, "chrf": None, "gains": {}, "sets": {}})
        for event in fine_tuned_run(DAMAGED)
    ]
    assert found(build_history(recorded)).keys() == {"worsened"}
    assert "the lowest later validation loss is 2.080, at step 240" in found(build_history(recorded))["worsened"]


def test_the_best_trade_off_is_the_checkpoint_that_gained_more_than_it_lost():
    news = (30, 29.9, 29.8, 28, 25, 23, 22)
    history = history_of(ADAPTED, news=news)
    assert (find_trade_off(history).step, find_trade_off(history).net) == (80, pytest.approx(4.5))
    gains = answer_gains(history)
    assert gains.text.endswith(
        "The best trade-off is step 80: gained 4.5 BLEU (4.2 to 4.8) on the validation set, showed no significant "
        "change (-0.2 BLEU, -0.5 to +0.1) on news."
    )
    assert gains.remedy == "To use the best trade-off: `dragoman translate RUN/checkpoints/best-trade-off`."


def test_gains_are_stated_once_where_the_result_is_the_best_trade_off():
    text = answer_gains(history_of(ADAPTED, news=(30,) * 7)).text
    assert text.endswith(" It is also the best trade-off.")
    assert text.count("on the validation set") == 1


def test_a_run_that_lost_more_than_it_gained_has_its_start_as_the_best_trade_off():
    history = history_of(ADAPTED, news=(30, 24, 23, 22, 21, 20, 19))
    assert find_trade_off(history).step == 0
    assert "The best trade-off is the starting model" in answer_gains(history).text
    assert find_trade_off(history_of(ADAPTED)) is None, "there is but one set"


def test_forgetting_points_to_the_best_trade_off():
    recorded = fine_tuned_run(ADAPTED, news=(30, 29.9, 29.8, 28, 25, 23, 22))
    losses = iter((3.0, 3.01, 3.02, 3.1, 3.2, 3.3, 3.4))
    for number, event in enumerate(recorded):
        if isinstance(event, EvaluationDone):
            sets = {"news": {**event.sets["news"], "nll": next(losses)}}
            recorded[number] = EvaluationDone(**{**vars(event), "sets": sets})
    [forgotten] = diagnose_forgetting(build_history(recorded))
    assert forgotten.text.startswith("Yes, since step 0: the loss on news rose from 3.000 to 3.400")
    assert "use the best trade-off, `checkpoints/best-trade-off` (step 80)" in forgotten.remedy


def test_the_average_of_checkpoints_has_gains_of_its_own():
    recorded = fine_tuned_run(ADAPTED)
    gains = {"valid": {"bleu": 9.0, "low": 8.0, "high": 10.0}}
    averaged = CheckpointsAveraged(
        at_s=recorded[-1].at_s, step=240, names=["step-00000240"], nll=1.4, bleu=29.0, chrf=29.0, gains=gains
    )
    assert (
        "The average of checkpoints gained 9.0 BLEU (8.0 to 10.0)"
        in overview(build_history([*recorded, averaged]))["how"]
    )


def test_the_next_step_of_a_finished_run_is_the_learning_curve():
    flat = history_of((2.0, 1.5, 1.45, 1.448, 1.447, 1.447, 1.447))
    trained = answer(flat, "trained")
    assert trained.text.startswith("Yes, for this model and data")
    assert "`dragoman learning-curve RECIPE --from models/opus --data DATA --out CURVE`" in trained.remedy
    assert "learning-curve" in overview(flat)["advice"]
    assert "learning-curve" not in overview(build_history(synthetic_run(200)))["advice"]


def test_a_run_that_still_falls_needs_more_steps():
    falling = [2.0 - 0.1 * n for n in range(7)]
    trained = answer(history_of(falling), "trained")
    assert trained.text.startswith("Not yet")
    assert trained.remedy.startswith("Start a new run of 360 steps.")


def test_the_price_is_for_the_points_gained():
    history = history_of(ADAPTED, overrides=(*FINE_TUNED, *PRICED))
    assert any("per BLEU point gained" in each for each in answer(history, "duration").evidence)


def test_a_start_that_was_not_evaluated_is_not_known():
    recorded = [event for event in fine_tuned_run(ADAPTED) if getattr(event, "step", 1) > 0]
    assert "was not evaluated" in answer_gains(build_history(recorded)).text
    first = [event for event in fine_tuned_run(ADAPTED[:2]) if getattr(event, "step", 0) == 0]
    assert "no evaluation after a step" in answer_gains(build_history(first)).text


MEASURED = (5.143, 4.83, 4.612, 4.468, 4.368, 4.292, 4.236, 4.195, 4.167, 4.15, 4.144)
"""Validation losses of `tiny`, trained on europarl and adapted to 4,000 pairs of Multi30k in 100 steps."""


@pytest.mark.parametrize("known", [3, 4, 5, 6, 7, 8, 9])
def test_the_end_of_a_measured_run_with_a_linear_decay_is_in_the_range_of_its_forecast_and_near_it(known):
    history = history_of(MEASURED[: known + 1], ended=None, total_steps=400)
    forecast = forecast_loss(history, 400)
    assert forecast.low <= MEASURED[-1] <= forecast.high
    assert forecast.value == pytest.approx(MEASURED[-1], rel=0.02)


def test_a_longer_run_is_forecast_although_the_end_of_a_linear_decay_is_flat():
    """The same model and data in 150 steps, with a schedule of its own, reached 3.950."""
    forecast = forecast_loss(history_of(MEASURED), 600)
    assert forecast.low <= 3.950 <= forecast.high
    assert forecast.step == 600
    assert answer(history_of(MEASURED), "trained").text.startswith("Not yet: 50 % more steps would lower")

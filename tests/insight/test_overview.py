from dataclasses import replace

import pytest

from dragoman import events
from dragoman.events import CheckpointSaved, Event
from dragoman.insight.answer import Answer
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.overview import Overview, describe_run
from dragoman.insight.run_history import build_history
from dragoman.insight.time_use import time_by_activity

from .synthetic_runs import power_law, synthetic_run
from .test_diagnoses import RUNS, network_bound, straggler, upturn


def overview(recorded: list[Event], *, quiet_s: float = 0.0, found: list[Answer] | None = None) -> Overview:
    history = build_history(recorded)
    diagnoses = diagnose(history) if found is None else found
    state = history.state(history.session_spans_s[-1][1] + quiet_s)
    return describe_run(history, state, diagnoses, answer_all(history), time_by_activity(history))


def recorded_run(kind: str, ended: str | None) -> list[Event]:
    changes = dict(RUNS[kind][0])
    extra = changes.pop("extra", ())
    ending = {"ended": None, "total_steps": 2 * changes.get("steps", 400)} if ended is None else {"ended": ended}
    recorded = synthetic_run(**{**changes, **ending, "extra": [event for event in extra if hasattr(event, "step")]})
    return [*recorded, *(event for event in extra if not hasattr(event, "step"))]


@pytest.mark.parametrize("ended", ["finished", "patience", "interrupted", None])
@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_of_run_gets_three_sentences_that_agree_with_its_diagnoses(kind, ended):
    recorded = recorded_run(kind, ended)
    found = overview(recorded)
    history = build_history(recorded)
    warnings = [answer for answer in (*diagnose(history), *answer_all(history)) if answer.is_warning]
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in found.sentences)
    assert len(found.more) == max(0, len(warnings) - 1), "each warning is stated once"
    assert ("Nothing unusual" in found.limit) == (not warnings)
    if warnings:
        assert "Let it run" not in found.advice
        assert any(warning.remedy[1:] in found.advice for warning in warnings)
        stated = " ".join([found.limit, *found.more])
        for warning in warnings:  # The answer without its first word, which the statement replaces.
            assert warning.text[len("Not always: ") :] in stated
    else:
        assert "Stop:" not in found.advice


def test_a_healthy_run_goes_on():
    found = overview(
        synthetic_run(400, total_steps=2000, ended=None, overrides=["money.price_per_hour=[2]", "money.currency=EUR"])
    )
    assert found.how.startswith("Running: step 400 of 2,000 after 7 min 00 s and 0.47 EUR, 28 min ")
    assert found.how.endswith("in total); BLEU 29.0, validation loss 2.700 at step 400.")
    assert found.limit == (
        "Nothing unusual: the GPU computes and updates weights for 90 % of the run; most of the rest is communication, "
        "5 %."
    )
    assert found.advice.startswith("Let it run: the steps to come would lower the validation loss by about ")
    assert found.more == []


def test_a_converged_run_may_stop():
    recorded = synthetic_run(400, total_steps=500, ended=None, valid_loss=lambda step: 1.5 + 40 * step**-1.8)
    assert overview(recorded).advice.startswith("Let it run to its end, or stop to save time: the steps to come would")


def test_a_finished_run_names_the_checkpoint_to_use():
    found = overview(synthetic_run(400, bleu=lambda step: 30 - abs(step - 280) / 40))
    assert found.how == (
        "Finished at step 400 of 400 after 7 min 00 s; BLEU 30.0 at step 280, lowest validation loss 2.700 at step 400."
    )
    assert found.advice.startswith(
        "Use `checkpoints/best-bleu` (step 280, BLEU 30.0, validation loss 2.993); 50 % more"
    )
    assert found.advice.endswith("raise training.steps to 600.")


def test_an_overfitting_run_stops_and_uses_its_best_checkpoint():
    losses = {"valid_loss": upturn, "train_loss": power_law, "bleu": lambda step: min(20, step / 8)}
    found = overview(synthetic_run(400, total_steps=800, ended=None, **losses))
    assert found.limit.startswith("It overfits, since step 160: the validation loss rose by ")
    assert found.advice.startswith("Stop: use the checkpoint of step 160 (best-loss).")


def test_a_diverging_run_stops():
    found = overview(synthetic_run(400, total_steps=800, ended=None, train_loss=lambda step: 3 + step / 100))
    assert found.limit.startswith("Training diverges: the training loss has risen from ")
    assert found.advice.startswith("Stop: lower schedule.learning_rate")


def test_the_most_severe_warning_comes_first_and_the_others_follow():
    lost = events.WorkersLost(step=90, workers=["worker 1 on b (step 90, computing)"], reason="no heartbeat")
    found = overview(synthetic_run(total_steps=800, ended=None, step=network_bound, extra=[lost]))
    assert found.limit == "The network is the bottleneck: communication took 95 % of step time."
    assert found.advice.startswith("Use exchange.method=auto: predicted step time ")
    assert [text.partition(":")[0] for text in found.more] == ["Workers were lost"]


def test_the_remedy_of_a_finished_run_is_for_the_next_one():
    advice = overview(synthetic_run(step=straggler)).advice
    assert advice.startswith("Use `checkpoints/best-bleu` (step 400")
    assert " For the next run: set training.shares=auto" in advice


def test_a_failed_run_shows_its_error_and_how_to_resume():
    recorded = synthetic_run(50, total_steps=100, ended=None)
    failed = events.WorkerFailed(at_s=recorded[-1].at_s + 1, worker=1, step=50, error="ValueError: no such pair")
    found = overview([*recorded, failed], quiet_s=1000)
    assert found.how.startswith(
        "Worker 1 failed after step 50: ValueError: no such pair. The run stopped at step 50 of"
    )
    assert found.advice.startswith("Fix that error, then run the same command again: it resumes from the checkpoint of")


def test_a_killed_run_says_how_to_resume():
    recorded = synthetic_run(50, total_steps=100, ended=None)
    found = overview(recorded, quiet_s=1000)
    assert found.how.startswith("Not responding, probably killed: the last event was at step 50 of 100")
    assert found.advice.startswith(
        "To continue, run the same command again: it resumes from the checkpoint of step 40."
    )
    unsaved = [event for event in recorded if not isinstance(event, CheckpointSaved)]
    assert "it starts from the beginning" in overview(unsaved, quiet_s=1000).advice


def test_a_run_that_diverged_needs_other_settings():
    found = overview(synthetic_run(300, total_steps=600, ended="diverged"))
    assert found.how.startswith(
        "Diverged: the loss stayed not finite even at lower learning rates. It ended at step 300"
    )
    assert found.advice.startswith("Start a new run with other settings. Lower schedule.learning_rate")


def test_the_first_steps_tell_no_limit_yet():
    found = overview(synthetic_run(3, total_steps=100, ended=None))
    assert found.how == "Running: step 3 of 100 after 3.0 s, time left: measuring."
    assert found.limit == "Nothing unusual so far; what limits the speed is known after 10 typical steps."
    assert found.advice == "Let it run."


def test_a_run_that_hardly_computes_says_what_it_does_instead():
    found = overview(synthetic_run(60, evaluate_every=2), found=[])
    assert found.limit == (
        "No fault found, but the GPU computes and updates weights for only 47 % of the run; most of the rest is "
        "evaluation, 50 %."
    )


def test_a_warning_without_a_statement_of_its_own_is_question_and_answer():
    new = Answer("new", "Is it haunted?", "Yes: by two ghosts.", ["seen"], remedy="Open a window.", is_warning=True)
    found = overview(synthetic_run(400, total_steps=800, ended=None), found=[new])
    assert (found.limit, found.advice) == ("Is it haunted? Yes: by two ghosts.", "Open a window.")


def test_lost_work_is_not_called_usual():
    first = synthetic_run(100, total_steps=200, ended=None)
    second = synthetic_run(200, start_at_s=first[-1].at_s + 60)
    resumed = [
        replace(event, resumed_step=40, session_at_s=event.at_s) if isinstance(event, events.RunStarted) else event
        for event in second
        if getattr(event, "step", 41) > 40
    ]
    assert overview([*first, *resumed]).limit == (
        "20 % of the run is lost work, because it went back to a checkpoint and repeated steps; the GPU computes and "
        "updates weights for 60 %."
    )

import re
from dataclasses import replace
from functools import partial

import pytest

from dragoman import events
from dragoman.event_log import EventLog
from dragoman.events import StepDone
from dragoman.insight.answer import Answer
from dragoman.insight.answers import answer_all
from dragoman.insight.run_history import RunHistory, build_history, read_history
from dragoman.run_folder import CHECKPOINT_FILES
from dragoman.training.checkpoint import CHECKSUMS_FILE, STATE_FILE
from dragoman.training.snapshot import OPTIMIZER_FILE, TRAINED_FILE

from ..small import tiny
from ..training.recorded_run import RecordedRun
from .synthetic_runs import host_sample, synthetic_run
from .test_diagnoses import RUNS, network_bound, warnings


def answer(history: RunHistory, key: str) -> Answer:
    return next(found for found in answer_all(history) if found.key == key)


def test_a_run_on_a_slow_link_gets_its_cause_and_its_remedy():
    """19.5 of each 20.5 s are communication over a link of 100 Mbit/s."""
    history = build_history(synthetic_run(step=network_bound))
    found = answer(history, "network")
    assert found.text == "Yes: communication took 95 % of step time."
    assert any("100 Mbit/s" in line for line in found.evidence)
    assert "exchange.method=auto" in found.remedy
    assert found.remedy.index("a link ten times") < found.remedy.index("exchange.method=bf16"), "the best comes first"


def test_a_slow_link_gets_a_remedy_for_methods_that_the_step_model_does_not_know():
    recorded = synthetic_run(step=network_bound, overrides=["exchange.method=powersgd"])
    assert "faster link" in answer(build_history(recorded), "network").remedy


@pytest.mark.parametrize(
    ("nominal", "expected"), [(1e9, "80.0 Mbit/s on average, 1,000 Mbit/s nominal"), (None, "link speed unknown")]
)
def test_the_traffic_of_the_busiest_interface_is_compared_with_its_nominal_speed(nominal, expected):
    sample = host_sample("b", 3)
    interfaces = [{**sample.interfaces[0], "nominal_bits_per_s": nominal}]
    history = build_history([*synthetic_run(60), replace(sample, interfaces=interfaces)])
    assert any(line.startswith("b: eth0 sent") and expected in line for line in answer(history, "network").evidence)


def test_device_use_is_busy_time_and_mfu_and_the_longest_wait_and_the_bound():
    history = build_history([*synthetic_run(step=network_bound), host_sample("b", 3)])
    found = answer(history, "devices")
    use = "GPU busy 4 % of the time (100 % by the driver); MFU 0 % (0.44 of 200 TFLOP/s); communication 95 %"
    assert found.text == f"{use}; bound by communication."
    assert found.evidence[-1] == "the step is bound by communication: it waits for the exchange for 95 % of the step"


def test_a_falling_validation_loss_gets_a_forecast():
    found = answer(build_history(synthetic_run(2000, evaluate_every=100)), "trained")
    assert found.text.startswith("Not yet")
    assert "3,000" in found.remedy


@pytest.mark.parametrize(
    "curve",
    [
        RUNS["converged"][0]["valid_loss"],
        lambda step: 2.0 if step > 80 else 9.0 - step / 15,
        lambda step: 2.0 + 0.001 * (step // 40 % 2) + (0 if step > 80 else 3.0),
    ],
    ids=["a fast power law", "a fall, then constant", "a fall, then noise"],
)
def test_a_flat_validation_loss_means_fully_trained(curve):
    assert answer(build_history(synthetic_run(valid_loss=curve)), "trained").text.startswith("Yes")


def test_parts_that_were_not_measured_are_unknown():
    def without_parts(done: StepDone) -> StepDone:
        return replace(
            done, data_s=0.0, compute_s=0.0, communication_s=0.0, straggler_s=0.0, optimizer_s=0.0, ready_s=[]
        )

    history = build_history(synthetic_run(step=without_parts))
    assert warnings(history) == set()
    assert {answer(history, key).confidence for key in ("devices", "network", "step-and-network")} == {"unknown"}


def test_overlapped_communication_is_told_apart_from_exposed_one():
    history = build_history(synthetic_run(step=lambda done: replace(done, overlapped_s=0.6 * done.step_s)))
    assert answer(history, "network").text.endswith(" of step time, and 60 % more was overlapped with computing.")


def test_behind_overlapped_steps_the_link_that_auto_measured_tells_what_others_would_bring():
    chosen = events.ExchangeChosen(
        step=1, method="local", every=64, wire_format="int4", overlap=4, bits_per_s=1e8, reason="slow link"
    )
    overlapped = partial(replace, communication_s=0.0, overlapped_s=0.5)
    found = answer(build_history(synthetic_run(step=overlapped, extra=[chosen])), "step-and-network")
    assert found.text.startswith("Communication takes 0.00 s of a ")
    assert any(line.startswith("at 100 Mbit/s: plain ") for line in found.evidence)


def test_too_few_evaluations_give_no_forecast():
    history = build_history(synthetic_run(90, total_steps=100))
    assert answer(history, "trained").confidence == "unknown"
    assert "needs 3 evaluations after the first step; this run has 2" in answer(history, "trained").text
    assert answer(history, "overfitting").confidence == "unknown"


def test_three_evaluations_give_a_rough_forecast():
    found = answer(build_history(synthetic_run(130, total_steps=400, ended=None)), "trained")
    assert found.text.startswith("Not yet: the steps to come would lower the validation loss by about")
    assert "at step 400, roughly, from 3 evaluations" in found.evidence[0]


@pytest.mark.parametrize("ended", [None, "finished"])
def test_a_flat_curve_in_the_warm_up_does_not_mean_that_the_model_is_trained(ended):
    overrides = ["schedule.warmup_steps=4000"]
    run = synthetic_run(valid_loss=lambda step: 4 - step / 1e5, ended=ended, overrides=overrides)
    found = answer(build_history(run), "trained")
    assert found.text.startswith("Not yet: the learning rate rises until step 4,000")


def test_after_the_decay_of_the_learning_rate_more_steps_need_a_new_run():
    decayed = build_history(synthetic_run(overrides=["schedule.policy=linear", "schedule.warmup_steps=10"]))
    assert answer(decayed, "trained").remedy == "Start a new run of 600 steps."


def test_the_forecast_of_a_running_run_includes_the_decay_of_its_learning_rate():
    overrides = ["schedule.policy=warmup_stable_decay", "schedule.warmup_steps=10"]
    evidence = [
        answer(build_history(synthetic_run(400, total_steps=800, ended=None, overrides=changed)), "trained").evidence
        for changed in (["schedule.policy=constant"], overrides)
    ]
    assert not any("decay" in line for line in evidence[0])
    assert any("the decay of the learning rate" in line for line in evidence[1])


def test_overfitting_names_its_onset_and_the_checkpoint_to_use():
    found = answer(build_history(synthetic_run(**RUNS["overfitting"][0])), "overfitting")
    assert "since step 160" in found.text
    assert "step 160 (best-loss)" in found.remedy


@pytest.mark.parametrize(("last_bleu", "starts", "is_warning"), [(20.0, "Yes", True), (25.0, "Not in BLEU", False)])
def test_a_model_whose_bleu_still_rises_does_not_overfit(last_bleu, starts, is_warning):
    recorded = synthetic_run(**RUNS["overfitting"][0])
    scored = [
        replace(event, bleu=20.0 if event.step < 400 else last_bleu)
        if isinstance(event, events.EvaluationDone)
        else event
        for event in recorded
    ]
    history = build_history(scored)
    found = answer(history, "overfitting")
    assert found.text.startswith(starts)
    assert found.is_warning == is_warning
    assert ("BLEU rose from 20.0 to 25.0" in answer(history, "trained").text) is not is_warning


@pytest.mark.parametrize(
    ("losses", "expected"),
    [([5.0, 4.0, 3.0], "Not so far: the last of 3"), ([5.0, 3.0, 3.5, 3.6], "Perhaps: the validation loss was lowest")],
)
def test_a_few_evaluations_give_a_careful_answer_about_overfitting(losses, expected):
    recorded = synthetic_run(
        40 * len(losses) + 10, total_steps=1000, ended=None, valid_loss=lambda s: losses[s // 40 - 1]
    )
    found = answer(build_history(recorded), "overfitting")
    assert found.text.startswith(expected)
    assert "5 evaluations are needed to be sure" in found.text
    assert found.confidence == "likely"
    assert not found.is_warning


def test_remaining_time_and_cost_include_evaluations():
    recorded = synthetic_run(200, total_steps=400, ended=None, overrides=["money.price_per_hour=[1.8]"])
    # 200 steps of 1 s, 5 evaluations of 2 s, 5 checkpoints of 0.01 s; two hosts at 1.80 an hour.
    expected = "3 min 30 s so far, 3 min 30 s left; cost 0.21 USD so far, 0.42 USD in total."
    assert answer(build_history(recorded), "duration").text == expected


def test_a_run_that_has_just_started_measures_its_time_left():
    def compile_first(done: StepDone) -> StepDone:
        return replace(done, step_s=65.0, compile_s=60.0) if done.step == 1 else done

    texts = [
        answer(build_history(synthetic_run(steps, total_steps=400, step=compile_first, ended=None)), "duration").text
        for steps in (1, 6, 7)
    ]
    assert texts[0] == "1 min 05 s so far, time left: measuring."
    assert texts[1].endswith("time left: measuring.")
    assert texts[2] == "1 min 11 s so far, 6 min 33 s plus 10 evaluations left."


def test_a_run_without_prices_names_the_setting():
    assert "money.price_per_hour" in " ".join(answer(build_history(synthetic_run(50)), "duration").evidence)


def test_an_interrupted_run_names_its_last_step():
    recorded = synthetic_run(50, total_steps=100, ended="interrupted")
    assert "interrupted at step 50 of 100" in answer(build_history(recorded), "duration").text


@pytest.mark.parametrize("policy", ["inverse_sqrt", "constant", "linear", "cosine", "warmup_stable_decay"])
def test_every_schedule_is_explained(policy):
    recorded = synthetic_run(20, overrides=[f"schedule.policy={policy}"])
    found = answer(build_history(recorded), "schedule")
    assert found.text.startswith(f"{policy}: linear warm-up")
    assert any("decay" in line for line in found.evidence) == (policy != "constant")


def test_every_file_of_a_checkpoint_is_explained():
    assert {OPTIMIZER_FILE, STATE_FILE, TRAINED_FILE, CHECKSUMS_FILE} < set(CHECKPOINT_FILES)


def test_a_real_run_is_answered_from_its_folder(data, tmp_path):
    recording = RecordedRun(tiny("training.steps=40", "evaluation.every=5"), data, tmp_path)
    log = EventLog(recording.run.events_of(0))
    recording.on_event = log.record
    recording.train()
    recording.run.config.write_text("{}")
    answers = {found.key: found for found in answer_all(read_history(tmp_path))}
    assert all(found.confidence != "unknown" for key, found in answers.items() if key != "trained")
    assert not answers["network"].is_warning
    assert f"{data.manifest.splits['train'].pairs:,} sentence pairs" in answers["corpus"].text
    saved = {line.partition(",")[0] for line in answers["checkpoint-files"].evidence}
    assert saved == {path.name for path in (tmp_path / "checkpoints" / "last").iterdir()} <= set(CHECKPOINT_FILES)


def test_runs_without_data_or_checkpoint_events_are_answered():
    kept = [event for event in synthetic_run(20) if not isinstance(event, events.DataOpened | events.CheckpointSaved)]
    history = build_history(kept)
    assert {answer(history, key).confidence for key in ("corpus", "checkpoint-files", "checkpoint-size")} == {"unknown"}


PERCENTAGE = re.compile(r"\((\d+) %\)")


def on_gpu(done: StepDone) -> StepDone:
    """A step in which the GPU waits for Python for 0.2 s."""
    return replace(done, step_s=1.2, host_s=0.2)


def recompiled(done: StepDone) -> StepDone:
    return replace(done, step_s=1.5, compile_s=0.5)


def compiled_inside_of_other_parts(done: StepDone) -> StepDone:
    """As older versions recorded it."""
    return replace(done, compile_s=0.5)


@pytest.mark.parametrize("step", [on_gpu, recompiled, compiled_inside_of_other_parts])
def test_the_parts_of_a_step_are_all_of_it(step):
    history = build_history(synthetic_run(step=step))
    percentages = [int(found) for found in PERCENTAGE.findall(answer(history, "step").evidence[0])]
    assert sum(percentages) == pytest.approx(100, abs=len(percentages) / 2), "each is rounded"


def test_host_bound_time_is_named():
    history = build_history(synthetic_run(step=on_gpu))
    assert "host-bound 0.200 s (17 %)" in answer(history, "step").evidence[0]
    assert "host-bound 17 %" in answer(history, "devices").text


def test_parts_that_do_not_occur_are_not_listed():
    breakdown = answer(build_history(synthetic_run()), "step").evidence[0]
    assert "host-bound" not in breakdown
    assert "compile" not in breakdown

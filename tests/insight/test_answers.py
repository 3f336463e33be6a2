import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import events
from dragoman.event_log import EventLog
from dragoman.events import StepDone
from dragoman.insight.answer import Answer
from dragoman.insight.answers import answer_all, in_short
from dragoman.insight.diagnoses import find_limits
from dragoman.insight.run_history import RunHistory, read_history, tell
from dragoman.run_folder import CHECKPOINT_FILES
from dragoman.training.checkpoint import CHECKSUMS_FILE, OPTIMIZER_FILE, STATE_FILE, TRAINED_FILE

from ..training.conftest import Recording, tiny
from .runs import made_run, power_law, sensed


def alarms(story: RunHistory) -> set[str]:
    return {answer.key for answer in (*find_limits(story), *answer_all(story)) if answer.alarm}


def answer(story: RunHistory, key: str) -> Answer:
    return next(each for each in (*find_limits(story), *answer_all(story)) if each.key == key)


def network_bound(done: StepDone) -> StepDone:
    return replace(done, step_s=20.5, communication_s=19.56)


def slow_peer(done: StepDone) -> StepDone:
    return replace(done, step_s=1.6, communication_s=0.66, straggler_s=0.6, ready_s=[0.94, 1.54])


def starved(done: StepDone) -> StepDone:
    return replace(done, step_s=1.5, data_s=0.5)


def recompiled(done: StepDone) -> StepDone:
    return replace(done, step_s=1.2, compile_s=0.3) if done.step % 3 == 0 else done


def turned(step: int) -> float:
    return 1.5 + 4 * abs(step - 160) / 400


def rising(step: int) -> float:
    return 3 + step / 100


KINDS = {
    "healthy": ({}, set()),
    "healthy on one worker": ({"world": 1, "hosts": ("a",)}, set()),
    "healthy and long": ({"steps": 3000, "evaluate_every": 200}, set()),
    "healthy and still running": ({"ended": None, "total_steps": 2000}, set()),
    "healthy with noise": ({"valid_loss": lambda step: power_law(step) * (1 + 0.01 * ((step // 40) % 2))}, set()),
    "converged": ({"valid_loss": lambda step: 1.5 + 40 * step**-1.8}, set()),
    "network-bound": ({"step": network_bound}, {"network"}),
    "slow peer": ({"step": slow_peer}, {"straggler"}),
    "input-bound": ({"step": starved}, {"input"}),
    "compiling again and again": ({"step": recompiled}, {"compiling"}),
    "checkpoint-bound": ({"stall_s": 5.0}, {"checkpoint-stalls"}),
    "overfitting": ({"valid_loss": turned, "train_loss": power_law}, {"overfitting"}),
    "diverging": ({"train_loss": rising, "valid_loss": rising}, {"diverging"}),
    "not finite any more": (
        {"extra": [events.StepSkipped(step=n, loss=math.nan, gradient_norm=1.0, consecutive=n) for n in range(1, 12)]},
        {"diverging"},
    ),
    "one step that is not finite": (
        {"extra": [events.StepSkipped(step=9, loss=math.nan, gradient_norm=1.0, consecutive=1)]}, set(),
    ),
    "diverged in the first steps": (
        {"train_loss": lambda step: 8.0 if step == 1 else 90.0, "valid_loss": lambda step: 90.0 - step / 100},
        {"diverging"},
    ),
    "out of memory": (
        {"extra": [events.MicroBatchesSplit(step=30, micro_batches=4, reason="CUDA out of memory")]}, {"memory-cuts"},
    ),
    "host lost": (
        {"extra": [events.WorkersLost(step=90, workers=["worker 1 on b (step 90, computing)"], reason="silent")]},
        {"lost"},
    ),
    "disk full": ({"extra": [events.CheckpointFailed(step=50, reason="No space left")]}, {"checkpoint-failed"}),
    "hot": ({"extra": [replace(sensed("b", n, throttled=["heat"])) for n in range(5)]}, {"throttled"}),
    "a power cap is no fault": ({"extra": [sensed("b", 3)]}, set()),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_gets_its_verdict_and_no_other_alarm(kind):
    changes, expected = KINDS[kind]
    extra = changes.get("extra", ())
    told = made_run(**{**changes, "extra": [event for event in extra if hasattr(event, "step")]})
    story = tell([*told, *(event for event in extra if not hasattr(event, "step"))])
    assert alarms(story) == expected
    for each in (*find_limits(story), *answer_all(story)):
        assert not each.alarm or each.remedy, "an alarm says what to do"
        assert each.evidence or not each.alarm


@settings(max_examples=15)
@given(
    st.integers(0, 60), st.floats(0.01, 30), st.integers(1, 5), st.sampled_from(["finished", "interrupted", None]),
    st.integers(3, 50),
)  # fmt: skip
def test_healthy_runs_of_any_length_and_speed_get_a_clean_bill(steps, scale, world, ended, evaluate_every):
    def scaled(done: StepDone) -> StepDone:
        spans = ("step_s", "data_s", "compute_s", "communication_s", "straggler_s", "optimizer_s")
        ready_s = [scale * each for each in done.ready_s]
        return replace(done, ready_s=ready_s, **{name: scale * getattr(done, name) for name in spans})

    told = made_run(steps, total_steps=60, world=world, step=scaled, ended=ended, evaluate_every=evaluate_every)
    story = tell(told)
    found = alarms(story) - {"evaluation", "checkpoint-stalls"}  # At 0.01 s a step, these do take most of the time.
    assert found == set()
    assert len(answer_all(story)) == 11
    assert in_short(story, story.spans_s[-1][1])


def test_run_c_is_told_its_cause_and_its_remedy():
    """19.5 of each 20.5 s wait for a port of 100 Mbit/s."""
    story = tell(made_run(step=network_bound))
    found = answer(story, "network")
    assert found.verdict == "Yes: 95 % of each step waited for it.".replace(" %", "%")
    assert any("100 Mbit/s" in line for line in found.evidence)
    assert "exchange.method=local" in found.remedy
    assert found.remedy.index("a link ten times") < found.remedy.index("exchange.method=bf16"), "the best comes first"
    assert "Yes" in in_short(story, 0)[0]


def test_the_slow_worker_is_named():
    story = tell(made_run(step=slow_peer))
    assert "worker 1 on b" in answer(story, "straggler").verdict


def test_an_unfinished_curve_is_told_what_more_steps_would_bring():
    story = tell(made_run(2000, evaluate_every=100))
    found = answer(story, "trained")
    assert found.verdict.startswith("Not yet")
    assert "3,000" in found.remedy


@pytest.mark.parametrize(
    "curve",
    [
        KINDS["converged"][0]["valid_loss"],
        lambda step: 2.0 if step > 80 else 9.0 - step / 15,
        lambda step: 2.0 + 0.001 * (step // 40 % 2) + (0 if step > 80 else 3.0),
    ],
    ids=["a fast power law", "a fall, and then level", "a fall, and then noise"],
)
def test_a_curve_that_has_levelled_is_fully_trained(curve):
    assert answer(tell(made_run(valid_loss=curve)), "trained").verdict.startswith("Yes")


def test_parts_that_were_not_measured_are_not_known():
    def old(done: StepDone) -> StepDone:
        return replace(
            done, data_s=0.0, compute_s=0.0, communication_s=0.0, straggler_s=0.0, optimizer_s=0.0, ready_s=[]
        )

    story = tell(made_run(step=old))
    assert alarms(story) == set()
    assert {answer(story, key).sure for key in ("devices", "network", "step-and-network")} == {"not known"}


def test_too_few_evaluations_are_not_known():
    assert answer(tell(made_run(100)), "trained").sure == "not known"
    assert answer(tell(made_run(100)), "overfitting").sure == "not known"


def test_overfitting_names_its_onset_and_the_checkpoint_to_use():
    found = answer(tell(made_run(**KINDS["overfitting"][0])), "overfitting")
    assert "from step 160 on" in found.verdict
    assert "step 160 (best-loss)" in found.remedy


def test_time_left_counts_evaluations_and_prices():
    told = made_run(200, total_steps=400, ended=None, overrides=["money.price_per_hour=[1.8]"])
    found = answer(tell(told), "duration")
    # 200 steps of 1 s, 5 evaluations of 2 s, 5 checkpoints of 0.01 s; two hosts at 1.80 an hour.
    assert "3 min 30 s are left" in found.verdict
    assert "0.21 USD" in found.verdict
    assert "0.42 USD in all" in found.verdict


def test_a_run_without_prices_says_so():
    assert "money.price_per_hour" in " ".join(answer(tell(made_run(50)), "duration").evidence)


def test_a_resumed_run_is_one_story():
    first = made_run(100, total_steps=200, ended=None)
    second = made_run(160, total_steps=200, begin_at_s=1.7e9 + 9000)
    resumed = [replace(event, resumed_step=80) if isinstance(event, events.RunStarted) else event for event in second]
    kept = [event for event in resumed if not isinstance(event, StepDone) or event.step > 80]
    story = tell([*first, *kept])
    assert [step.step for step in story.steps] == list(range(1, 161))
    assert len(story.sessions) == 2
    assert story.elapsed_s < 400, "the time between sessions does not count"


def test_a_checkpoint_that_two_workers_keep_is_one():
    told = made_run(200)
    twice = [*told, *(event for event in told if isinstance(event, events.CheckpointSaved))]
    assert tell(twice).checkpoints == tell(told).checkpoints


def test_a_killed_run_falls_silent():
    story = tell(made_run(50, total_steps=100, ended=None))
    last = story.spans_s[-1][1]
    assert story.state(last + 5) == "running"
    assert story.state(last + 1000) == "silent"
    assert "silent" in in_short(story, last + 1000)[0]


def test_every_file_of_a_checkpoint_is_explained():
    assert {OPTIMIZER_FILE, STATE_FILE, TRAINED_FILE, CHECKSUMS_FILE} < set(CHECKPOINT_FILES)


def test_a_real_run_is_answered_from_its_folder(data, tmp_path):
    recording = Recording(tiny("training.steps=40", "evaluation.every=5"), data, tmp_path)
    log = EventLog(recording.run.events_of(0))
    recording.on_event = log.record
    recording.train()
    recording.run.config.write_text("{}")
    story = read_history(tmp_path)
    answers = {each.key: each for each in answer_all(story)}
    assert all(each.sure != "not known" for key, each in answers.items() if key != "trained")
    assert not answers["network"].alarm
    manifest = data.manifest.splits["train"]
    assert f"{manifest.pairs:,} pairs" in answers["corpus"].verdict
    saved = {line.partition(",")[0] for line in answers["checkpoint-files"].evidence}
    assert saved == {path.name for path in (tmp_path / "checkpoints" / "last").iterdir()} <= set(CHECKPOINT_FILES)

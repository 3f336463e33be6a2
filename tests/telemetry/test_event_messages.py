import math
from dataclasses import replace

import pytest

from dragoman import events
from dragoman.events import Event, RunEnded, RunStarted
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.telemetry.event_messages import divergence_remedy, message_for


def text_of(event: Event) -> str:
    message = message_for(event)
    assert message is not None
    return message.text


@pytest.mark.parametrize("reason", ["finished", "patience", "interrupted", "diverged"])
def test_every_ending_has_a_message(reason):
    message = message_for(RunEnded(step=1234, reason=reason, elapsed_s=3700))
    assert "1,234" in message.text
    assert message.level == ("error" if reason == "diverged" else "info")


def test_the_remedy_for_a_run_that_diverged_fits_every_run():
    ending = text_of(RunEnded(step=9, reason="diverged", elapsed_s=1))
    assert "Lower schedule.learning_rate, raise schedule.warmup_steps" in ending
    assert "(with --from, lower fine_tuning.learning_rate, raise fine_tuning.warmup_fraction)" in ending
    assert "schedule" not in divergence_remedy(is_fine_tuning=True)
    assert "fine_tuning" not in divergence_remedy(is_fine_tuning=False)


def test_a_failed_checkpoint_names_its_reason_and_the_remedy():
    text = text_of(events.CheckpointFailed(step=5, reason="No space left on device"))
    assert "No space left on device" in text
    assert "free some disk space" in text


def test_a_start_and_a_resume_have_different_messages():
    fresh = RunStarted(
        run="base", version="1", torch_version="2", world_size=2, device="CPU", host="h", parameters=61_000_000,
        precision="fp32", data_hash="d", resumed_step=0, total_steps=100, settings={},
    )  # fmt: skip
    assert text_of(fresh) == "base started: 61.0 M parameters, 2 workers, CPU, fp32."
    assert text_of(replace(fresh, resumed_step=40)).startswith("base resumed from step 40:")
    origin = {"model": "models/opus", "format": "MarianMT", "languages": "en-de", "weights": "0f"}
    assert text_of(replace(fresh, start=origin)).endswith(
        "fp32. It began with models/opus (MarianMT, en-de), whose architecture and tokenizer it has."
    )


@pytest.mark.parametrize(
    ("workers", "has_majority", "text"),
    [
        (["worker 1 on b"], True, "The weights of worker 1 on b differ from those of the other workers after step 40"),
        (["worker 0 on a", "worker 1 on b"], False, "The weights of worker 0 on a, worker 1 on b differ after step 40"),
    ],
)
def test_drifted_replicas_are_an_error_with_a_remedy(workers, has_majority, text):
    message = message_for(events.ReplicasDrifted(step=40, workers=workers, has_majority=has_majority))
    assert message.text.startswith(text)
    assert "resume" in message.text
    assert message.level == "error"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (events.StepSkipped(step=5, loss=math.nan, gradient_norm=1.0, consecutive=1), "Step 5 skipped"),
        (events.RolledBack(from_step=9, to_step=5, learning_rate_factor=0.5), "rolled back to step 5"),
        (events.MicroBatchesSplit(step=5, micro_batches=4, reason="memory"), "split into 4 micro-batches"),
        (WorkersLate(step=5, workers=["worker 1 on b"]), "worker 1 on b was late after step 5: the others"),
        (events.WorkersLost(step=5, workers=[], reason="reset"), "Connection lost after step 5: reset."),
        (events.WorkersLost(step=5, workers=["worker 1 on b"], reason="reset"), "Lost worker 1 on b after step 5"),
        (events.CollectiveStalled(step=5, workers=["worker 1 on b"]), "Waiting for worker 1 on b since step 5."),
        (events.CheckpointRejected(name="step-5", reason="checksum"), "using the previous one"),
    ],
)
def test_problems_are_warnings(event, text):
    message = message_for(event)
    assert text in message.text
    assert message.level == "warning"


def test_the_local_method_names_its_interval_and_wire_format():
    chosen = events.ExchangeChosen(step=9, method="local", every=16, wire_format="int8", reason="slow link")
    assert text_of(chosen) == "Exchange method local, synchronising every 16 steps in int8: slow link."


@pytest.mark.parametrize(("write_s", "is_reported"), [(1.0, False), (40.0, True)])
def test_only_slow_checkpoints_are_reported(write_s, is_reported):
    saved = events.CheckpointSaved(step=5, name="step-5", size_bytes=10**9, stall_s=0.1, write_s=write_s)
    assert (message_for(saved) is not None) == is_reported


def test_an_average_names_its_scores():
    skipped = text_of(events.CheckpointSkipped(step=1000, ahead="step-00001200"))
    assert skipped.startswith("The checkpoint of step 1,000 was not kept: another part of this run")
    assert "step-00001200" in skipped
    averaged = events.CheckpointsAveraged(step=9, names=["a", "b"], nll=1.5, bleu=30.0, chrf=None)
    assert text_of(averaged) == "Average of 2 checkpoints: validation loss 1.500, BLEU 30.0."


def test_merged_steps_of_late_workers_are_told_with_their_weights():
    merged = LateStepsMerged(step=9, workers=["worker 1 on b"], steps=[4], target_tokens=[100], weights=[0.125])
    message = message_for(merged)
    assert message.text == "Late steps merged after step 9: 4 of worker 1 on b (weight 0.12)."
    assert message.level == "info"

"""The log of a run as JSON lines."""

import io
import json

from dragoman.events import CheckpointFailed, SharesChanged
from dragoman.launch.host_output import HostOutput
from dragoman.recipe import resolve
from dragoman.telemetry.json_log import JsonLog
from dragoman.telemetry.sinks import open_sinks
from dragoman.terminal import Console

from ..insight.synthetic_runs import synthetic_run

JSON = ["telemetry.log_format=json", "training.steps=60"]


def lines_of(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_is_logged_with_levels_numbers_and_times():
    file = io.StringIO()
    log = JsonLog(file, resolve(None, JSON).settings)
    for event in (*synthetic_run(60), CheckpointFailed(step=3, reason="no space"), SharesChanged(step=4, shares=[1.0])):
        log.record(event)
    lines = lines_of(file.getvalue())
    assert all(set(line) >= {"time", "level", "event", "message"} for line in lines)
    steps = [line for line in lines if line["event"] == "step_done"]
    assert len(steps) == 1, "at most one every ten seconds"
    assert steps[0].keys() >= {"step", "total_steps", "loss", "tokens_per_s", "remaining_s"}
    [evaluation] = [line for line in lines if line["event"] == "evaluation_done" and line["step"] == 40]
    assert evaluation["bleu"] > 0
    assert [line["level"] for line in lines if line["event"] == "checkpoint_failed"] == ["error"]
    assert lines[0]["time"].startswith("2023-11-14T22:13:20")


def test_a_loss_that_is_not_finite_is_null():
    file = io.StringIO()
    log = JsonLog(file, resolve(None, JSON).settings)
    log.say("a message", loss=float("nan"))
    assert lines_of(file.getvalue())[0]["loss"] is None


def test_the_setting_chooses_it_for_train_and_for_launch(capsys):
    settings = resolve(None, JSON).settings
    [sink] = open_sinks(settings)
    view = HostOutput(Console(), settings)
    view.label(["a", "b"])
    for event in synthetic_run(5):
        sink.record(event)
        view.event(event)
    view.line("a", "some text")
    view.warn("a warning")
    view.end_attempt()
    lines = lines_of(capsys.readouterr().out)
    assert sum(line["event"] == "run_started" for line in lines) == 2
    assert {"some text", "a warning"} <= {line["message"] for line in lines}

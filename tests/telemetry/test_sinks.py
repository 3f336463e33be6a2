import io
import math
import os
import pty
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dragoman import events
from dragoman.events import EvaluationDone, StepDone
from dragoman.recipe import resolve
from dragoman.telemetry import curve_points
from dragoman.telemetry.sinks import TensorBoardSink, TerminalSink, open_sinks
from dragoman.telemetry.throughput import ThroughputMeter

SETTINGS = resolve(None, ["training.steps=100", "evaluation.every=20"]).settings


def step(number: int, loss: float = 2.0, step_s: float = 0.5) -> StepDone:
    return StepDone(
        step=number, epoch=0, batch=number, loss=loss, nll=loss, gradient_norm=1.0, learning_rate=0.001,
        source_tokens=900, target_tokens=1100, pairs=50, step_s=step_s, micro_batches=1,
    )  # fmt: skip


def evaluation(number: int, bleu: float | None = 31.4) -> EvaluationDone:
    return EvaluationDone(
        step=number, loss=1.5, nll=1.25, perplexity=math.exp(1.25), bleu=bleu, bleu_signature="s", chrf=bleu,
        chrf_signature="s", target_tokens=1000, evaluation_s=4.0,
        samples=[{"source": "a [dog]", "reference": "ein Hund", "translation": "ein [Hund]"}],
    )  # fmt: skip


def printed(*recorded: events.Event) -> str:
    console = Console(file=io.StringIO(), width=100)
    sink = TerminalSink(console, SETTINGS)
    for event in recorded:
        sink.record(event)
    sink.close()
    return console.file.getvalue()


def test_throughput_counts_both_sides_and_remaining_time_includes_evaluations():
    throughput = ThroughputMeter(SETTINGS)
    for number in range(1, 41):
        throughput.record(step(number, step_s=30.0 if number == 1 else 0.5))
    throughput.record(evaluation(40))
    assert throughput.tokens_per_s == pytest.approx(4000)
    assert throughput.remaining_time.total_s == pytest.approx(60 * 0.5 + 3 * 4.0)
    assert throughput.remaining_time.unmeasured_evaluations == 0


def test_without_a_terminal_there_are_plain_lines():
    text = printed(step(1), evaluation(20), evaluation(40, bleu=None))
    assert "step 1 of 100  loss 2.000  4,000 tokens/s  time left: measuring" in text
    assert "31.4" in text
    assert "a [dog]\n" in text, "square brackets in the text are not markup"
    assert text.count("a [dog]") == 1
    assert text.count("-> ein [Hund]") == 2
    assert text.count("valid loss") == 1


NEWS = {"news": {"loss": 2.5, "nll": 2.25, "bleu": 20.5, "chrf": None, "target_tokens": 90}}


def test_the_model_that_a_run_begins_with_has_no_training_loss_and_later_ones_gain():
    gains = {"valid": {"bleu": 2.0, "low": 1.5, "high": 2.5}, "news": {"bleu": -1.0, "low": -1.5, "high": -0.5}}
    text = printed(evaluation(0), step(1), replace(evaluation(20), gains=gains))
    assert "       0           -       1.250" in text
    assert "gained 2.0 BLEU (1.5 to 2.5) on the validation set, lost 1.0 BLEU (0.5 to 1.5) on news" in text.replace(
        "\n", " "
    )


def test_other_evaluation_sets_are_printed_below_the_validation_set_in_the_same_columns():
    lines = printed(step(1), replace(evaluation(20), sets=NEWS)).splitlines()
    header = next(number for number, line in enumerate(lines) if "valid loss" in line)
    heads, valid, news = lines[header : header + 3]
    assert news.split() == ["news", "2.250", "9.49", "20.5", "-"]
    for text in ("1.250", "31.4"):
        ends = heads.index("valid loss") + len("valid loss") if text == "1.250" else heads.index("BLEU") + len("BLEU")
        assert valid.index(text) + len(text) == ends
    assert news.index("2.250") + 5 == heads.index("valid loss") + len("valid loss")
    assert news.index("20.5") + 4 == heads.index("BLEU") + len("BLEU")


def test_tensorboard_has_the_other_evaluation_sets_beside_the_validation_set(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path, first_step=0)
    sink.record(replace(evaluation(20), sets=NEWS))
    sink.close()
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert {tag for tag in board.Tags()["scalars"] if "news" in tag} == {"eval/loss/news", "eval/bleu/news"}
    assert board.Scalars("eval/bleu/news")[0].value == pytest.approx(20.5)


def test_a_terminal_shows_a_progress_bar():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    sink = TerminalSink(console, SETTINGS)
    sink.record(step(50))
    sink.close()
    assert "50" in console.file.getvalue()


def test_workers_of_mpirun_have_no_progress_bar(monkeypatch):
    """Open MPI gives them a pseudo-terminal, even if its own output goes to a file."""
    primary, replica = pty.openpty()
    with os.fdopen(replica, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
        (sink,) = open_sinks(SETTINGS)
        for number in range(1, 4):
            sink.record(step(number))
        sink.close()
        terminal.flush()
        printed = os.read(primary, 4096)
    os.close(primary)
    assert b"step 1 of 100" in printed
    assert b"\x1b" not in printed


def test_messages_are_printed_without_markup():
    text = printed(events.CheckpointFailed(step=5, reason="[Errno 28] No space left on device"))
    assert "[Errno 28] No space left" in text


def test_batch_shares_are_printed_when_they_change_noticeably():
    changes = [events.SharesChanged(step=step, shares=shares) for step, shares in ((5, [0.7, 0.3]), (9, [0.72, 0.28]))]
    text = printed(*changes)
    assert "Batch shares from step 6 on: 70 : 30 %." in text
    assert text.count("Batch shares") == 1


def test_tensorboard_has_the_scalars_and_samples(tmp_path):
    sink = TensorBoardSink(tmp_path, first_step=0)
    sink.record(step(1, loss=3.5))
    sink.record(evaluation(20))
    sink.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert set(board.Tags()["scalars"]) == {
        "train/loss", "train/learning_rate", "train/gradient_norm", "speed/step_s", "speed/tokens_per_s",
        "eval/loss", "eval/perplexity", "eval/bleu", "eval/chrf",
    }  # fmt: skip
    assert board.Scalars("train/loss")[0].value == pytest.approx(3.5)
    assert board.Scalars("eval/bleu")[0].step == 20
    assert board.Tags()["tensors"] == ["eval/samples/text_summary"]


def steps_on_board(folder: Path, steps: int, step_s: float) -> list[int]:
    """The steps of a run that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(folder, first_step=0)
    for number in range(1, steps + 1):
        sink.record(replace(step(number, loss=3.5), at_s=number * step_s))
    sink.close()
    board = EventAccumulator(str(folder))
    board.Reload()
    return [scalar.step for scalar in board.Scalars("train/loss")]


def test_tensorboard_gets_a_few_of_many_short_steps(tmp_path):
    assert steps_on_board(tmp_path, 50, step_s=0.0101) == [1, 11, 21, 31, 41]


def test_tensorboard_gets_fewer_of_the_later_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(curve_points, "DENSE_CURVE_STEPS", 100)
    shown = steps_on_board(tmp_path, 1000, step_s=1.0)
    assert shown[:99] == list(range(1, 100))
    assert [number for number in shown if 200 <= number < 220] == [201, 204, 207, 210, 213, 216, 219]
    assert len(shown) < 320

import io
import math

import pytest
from rich.console import Console

from dragoman import events
from dragoman.events import EvaluationDone, RunEnded, RunStarted, StepDone
from dragoman.recipe import resolve
from dragoman.telemetry.event_messages import _ENDINGS, sentence
from dragoman.telemetry.sinks import Pace, TensorBoardSink, TerminalSink

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


def shown(*told: events.Event) -> str:
    console = Console(file=io.StringIO(), width=100)
    sink = TerminalSink(console, SETTINGS)
    for event in told:
        sink.record(event)
    sink.close()
    return console.file.getvalue()


def test_pace_counts_both_sides_and_the_evaluations_to_come():
    pace = Pace(100, 20)
    for number in range(1, 41):
        pace.record(step(number))
    pace.record(evaluation(40))
    assert pace.tokens_per_s == pytest.approx(4000)
    assert pace.left_s == pytest.approx(60 * 0.5 + 3 * 4.0)


def test_plain_lines_hold_what_a_person_wants_to_know():
    text = shown(step(1), evaluation(20), evaluation(40, bleu=None))
    assert "step 1 of 100  loss 2.000  4,000 tokens/s" in text
    assert "31.4" in text
    assert "a [dog]\n" in text, "square brackets of the text are no markup"
    assert text.count("a [dog]") == 1
    assert text.count("-> ein [Hund]") == 2
    assert text.count("valid loss") == 1


def test_a_terminal_gets_a_bar_that_leaves_no_trace():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    sink = TerminalSink(console, SETTINGS)
    sink.record(step(50))
    sink.close()
    assert "50" in console.file.getvalue()


@pytest.mark.parametrize("reason", ["finished", "patience", "interrupted", "diverged"])
def test_every_ending_has_words(reason):
    assert reason in _ENDINGS
    assert "1,234" in sentence(RunEnded(step=1234, reason=reason, elapsed_s=3700))


def test_events_that_matter_have_a_sentence_with_a_remedy():
    text = sentence(events.CheckpointFailed(step=5, reason="No space left on device"))
    assert "No space left on device" in text
    assert "make room" in text
    assert "half" not in sentence(events.StepSkipped(step=5, loss=math.nan, gradient_norm=1.0, consecutive=1))
    assert "goes on from step 40" in sentence(
        RunStarted(
            run="r", version="1", torch_version="2", world_size=2, device="CPU", host="h", parameters=1,
            precision="fp32",
            data_hash="d", resumed_step=40, total_steps=100, settings={},
        )
    )  # fmt: skip


def test_tensorboard_holds_the_scalars_and_samples(tmp_path):
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

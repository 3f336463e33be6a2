"""The eleven questions that everyone asks about a run, answered from its events alone. One module for each topic."""

from collections.abc import Callable

from dragoman.insight.answer import Answer
from dragoman.insight.answers.checkpoint_contents import answer_checkpoint_files, answer_checkpoint_size
from dragoman.insight.answers.device_use import answer_device_use
from dragoman.insight.answers.duration import answer_duration
from dragoman.insight.answers.network_use import answer_bottleneck, answer_link_effect
from dragoman.insight.answers.step_time import answer_step_time
from dragoman.insight.answers.training_data import answer_data_size
from dragoman.insight.answers.training_progress import answer_overfitting, answer_schedule, answer_trained
from dragoman.insight.run_history import RunHistory

QUESTIONS: tuple[Callable[[RunHistory], Answer], ...] = (
    answer_duration,
    answer_trained,
    answer_overfitting,
    answer_device_use,
    answer_bottleneck,
    answer_schedule,
    answer_data_size,
    answer_checkpoint_files,
    answer_checkpoint_size,
    answer_step_time,
    answer_link_effect,
)


def answer_all(history: RunHistory) -> list[Answer]:
    """All answers, in the order of the report."""
    return [answer_question(history) for answer_question in QUESTIONS]

"""The work due after a step. It depends on the step's number alone, so that all workers take part in it."""

from dataclasses import dataclass

from dragoman.settings import Settings


@dataclass(frozen=True)
class DueWork:
    """The work due after a step."""

    last: bool
    """True after the last step of the run."""
    evaluation: bool
    checkpoint: bool
    exchange_review: bool
    """True if the choice of the exchange method is to be checked."""

    @property
    def needs_equal_weights(self) -> bool:
        return self.checkpoint or self.exchange_review


def due_after(step: int, settings: Settings, review_every: int) -> DueWork:
    """The work due after a step; `review_every` is 0 where the exchange method is not reviewed.

    Step 0 is the model that the run begins with: it is evaluated and saved like any other.
    """
    last = step == settings.training.steps
    evaluation = last or step % settings.evaluation.every == 0
    return DueWork(
        last=last,
        evaluation=evaluation,
        checkpoint=evaluation or step % settings.checkpoint.every == 0,
        exchange_review=step > 0 and review_every > 0 and step % review_every == 0,
    )

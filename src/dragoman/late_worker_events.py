"""Events of workers that are late at a synchronisation of local steps."""

from dataclasses import dataclass

from dragoman.events import Event


@dataclass(frozen=True, kw_only=True)
class WorkersLate(Event):
    """Workers were late at a synchronisation of local steps, and the others continue without them."""

    step: int
    """The step after which the others had arrived."""
    workers: list[str]
    """The late workers, with their hosts and last activity."""


@dataclass(frozen=True, kw_only=True)
class LateStepsMerged(Event):
    """Workers that were late have joined the others again, and their local steps were added to the weights."""

    step: int
    """The last step of the others."""
    workers: list[str]
    """The late workers, with their hosts."""
    steps: list[int]
    """Number of local steps of each."""
    target_tokens: list[int]
    """Target tokens in the shares of each."""
    weights: list[float]
    """Weight of each one's change: its part of the target tokens of all workers in these steps."""

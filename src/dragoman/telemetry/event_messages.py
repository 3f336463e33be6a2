"""Messages about events, as plain text with a level. The terminal and the report show the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dragoman import events
from dragoman.errors import write_remedy
from dragoman.events import Event
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.number_format import count, size, span

SLOW_WRITE_S = 30.0
"""A checkpoint that took longer to write is reported."""


@dataclass(frozen=True)
class EventMessage:
    """One or two sentences about an event."""

    text: str
    level: Literal["detail", "info", "warning", "error"] = "info"


def message_for(event: Event) -> EventMessage | None:
    """The message of an event; None for events that are not reported by themselves, such as a step."""
    match event:
        case events.RunStarted():
            start = f"resumed from step {count(event.resumed_step)}" if event.resumed_step else "started"
            workers = "1 worker" if event.world_size == 1 else f"{event.world_size} workers"
            parameters = f"{event.parameters / 1e6:.1f} M parameters"
            text = f"{event.run} {start}: {parameters}, {workers}, {event.device}, {event.precision}."
            return EventMessage(f"{text} {origin}" if (origin := describe_origin(event.start)) else text)
        case events.WorldChanged():
            return EventMessage(f"Workers from step {count(event.step + 1)} on: {', '.join(event.workers)}.")
        case events.WorkersLost():
            lost = f"Lost {', '.join(event.workers)}" if event.workers else "Connection lost"
            return EventMessage(f"{lost} after step {count(event.step)}: {event.reason}.", "warning")
        case WorkersLate():
            late = f"{', '.join(event.workers) or 'A worker'} was late after step {count(event.step)}"
            return EventMessage(f"{late}: the others continue, and merge its steps when it arrives.", "warning")
        case LateStepsMerged():
            each = zip(event.workers, event.steps, event.weights, strict=True)
            merged = ", ".join(f"{steps} of {worker} (weight {weight:.2f})" for worker, steps, weight in each)
            return EventMessage(f"Late steps merged after step {count(event.step)}: {merged}.")
        case events.WorkerFailed():
            text = f"Worker {event.worker} failed after step {count(event.step)}: {event.error}"
            return EventMessage(text if text.endswith(".") else f"{text}.", "error")
        case events.CollectiveStalled():
            return EventMessage(f"Waiting for {', '.join(event.workers)} since step {count(event.step)}.", "warning")
        case events.MessagesRejected():
            rejected = f"Rejected {count(event.count)} messages or connections of strangers"
            return EventMessage(f"{rejected} from {', '.join(event.sources)}: restrict the ports.", "warning")
        case events.ExchangeChosen():
            return EventMessage(f"Exchange method {event.method}{_synchronisation(event)}: {event.reason}.")
        case events.StepSkipped():
            return EventMessage(f"Step {count(event.step)} skipped: loss or gradient not finite.", "warning")
        case events.RolledBack():
            back = f"rolled back to step {count(event.to_step)}"
            rate = f"learning rate multiplied by {event.learning_rate_factor:g}"
            return EventMessage(f"Too many skipped steps: {back}, {rate}.", "warning")
        case events.MicroBatchesSplit():
            split = f"the worker's batch is now split into {event.micro_batches} micro-batches"
            return EventMessage(f"Out of memory in step {count(event.step)}: {split}.", "warning")
        case events.ReplicasDrifted():
            which = "differ from those of the other workers" if event.has_majority else "differ"
            weights = f"The weights of {', '.join(event.workers)} {which} after step {count(event.step)}"
            return EventMessage(f"{weights}: interrupt the run and resume it, which makes them equal again.", "error")
        case events.TrackerFailed():
            later = "it is tried again from time to time, and receives what it missed"
            return EventMessage(f"{event.tracker} failed ({event.reason}): training continues, and {later}.", "warning")
        case events.RunEnded():
            return _ending(event)
    return _checkpoint_message(event)


def describe_origin(start: Mapping[str, str] | None) -> str:
    """The model that a run began with, as a sentence; empty for random weights."""
    if start is None:
        return ""
    kind = f"{start['format']}, {start['languages']}"
    return f"It began with {start['model']} ({kind}), whose architecture and tokenizer it has."


def _synchronisation(event: events.ExchangeChosen) -> str:
    return f", synchronising every {event.every} steps in {event.wire_format}" if event.method == "local" else ""


def _checkpoint_message(event: Event) -> EventMessage | None:
    match event:
        case events.CheckpointFailed():
            return EventMessage(
                f"The checkpoint of step {count(event.step)} could not be written ({event.reason}). Training "
                f"continues and older checkpoints are kept: {write_remedy(event.reason)}.",
                "error",
            )
        case events.CheckpointSkipped():
            return EventMessage(
                f"The checkpoint of step {count(event.step)} was not kept: another part of this run, which this one "
                f"cannot reach, has already written {event.ahead} to the same folder.",
                "warning",
            )
        case events.CheckpointRejected():
            return EventMessage(
                f"Checkpoint {event.name} is damaged ({event.reason}): using the previous one.", "warning"
            )
        case events.CheckpointsAveraged():
            bleu = "" if event.bleu is None else f", BLEU {event.bleu:.1f}"
            averaged = "1 checkpoint" if len(event.names) == 1 else f"{len(event.names)} checkpoints"
            return EventMessage(f"Average of {averaged}: validation loss {event.nll:.3f}{bleu}.")
        case events.CheckpointSaved() if event.write_s > SLOW_WRITE_S:
            written = f"writing {size(event.size_bytes)} took {span(event.write_s)}"
            return EventMessage(f"Checkpoint {event.name}: {written}.", "detail")
    return None


_ENDINGS = {
    "finished": "Finished after {step} steps and {elapsed} of training.",
    "patience": "Stopped early after {step} steps and {elapsed}: the validation score no longer improved.",
    "interrupted": "Interrupted at step {step} after {elapsed}. Run the same command again to resume.",
    "diverged": "Diverged at step {step}: the loss stayed not finite even at lower learning rates. {remedy}",
}


def divergence_remedy(*, is_fine_tuning: bool | None = None) -> str:
    """What to change after a loss that was not finite. A run with --from takes no settings of `schedule`."""
    scratch = "lower schedule.learning_rate, raise schedule.warmup_steps"
    tuning = "lower fine_tuning.learning_rate, raise fine_tuning.warmup_fraction"
    rates = {True: tuning, False: scratch, None: f"{scratch} (with --from, {tuning})"}[is_fine_tuning]
    return f"{rates.capitalize()}, set optimizer.clip_norm, or look for broken pairs in the data."


def _ending(event: events.RunEnded) -> EventMessage:
    step, elapsed = count(event.step), span(event.elapsed_s)
    text = _ENDINGS[event.reason].format(step=step, elapsed=elapsed, remedy=divergence_remedy())
    return EventMessage(text, "error" if event.reason == "diverged" else "info")

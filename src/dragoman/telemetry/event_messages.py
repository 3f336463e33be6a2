"""Events as people would say them, in rich's markup."""

from rich.markup import escape

from dragoman import events
from dragoman.events import Event
from dragoman.terminal import count, size, span


def sentence(event: Event) -> str:
    """An event as people would say it; empty for those that are not worth a line."""
    match event:
        case events.RunStarted():
            begun = f"goes on from step {count(event.resumed_step)}" if event.resumed_step else "begins"
            workers = "1 worker" if event.world_size == 1 else f"{event.world_size} workers"
            return (
                f"[bold]{escape(event.run)}[/bold] {begun}: {event.parameters / 1e6:.1f} M parameters, {workers}, "
                f"{event.device}, {event.precision}"
            )
        case events.WorldChanged():
            return f"From step {count(event.step + 1)} on: {escape(', '.join(event.workers))}."
        case events.WorkersLost():
            who = ", ".join(event.workers) or "The connection"
            return f"[yellow]{escape(who)} was lost after step {count(event.step)}: {escape(event.reason)}.[/yellow]"
        case events.CollectiveStalled():
            return f"[yellow]Waiting after step {count(event.step)} for {escape(', '.join(event.workers))}.[/yellow]"
        case events.ExchangeChosen():
            every = f", every {event.every} steps in {event.wire_format}" if event.method == "local" else ""
            return f"Exchange [bold]{event.method}[/bold]{every}: {escape(event.reason)}."
        case events.CheckpointFailed():
            return (
                f"[bold red]The checkpoint of step {count(event.step)} could not be written ({escape(event.reason)}). "
                "Training goes on and older checkpoints are kept: make room on the disk.[/bold red]"
            )
        case events.CheckpointRejected():
            return (
                f"[yellow]Checkpoint {event.name} is damaged ({escape(event.reason)}): the one before is used.[/yellow]"
            )
        case events.MicroBatchesSplit():
            step = count(event.step)
            return f"[yellow]Step {step} did not fit into memory: cut into {event.micro_batches} pieces.[/yellow]"
        case events.StepSkipped():
            return f"[yellow]Step {count(event.step)} was skipped: its loss or gradient is not finite.[/yellow]"
        case events.RolledBack():
            return (
                f"[yellow]Too many steps were skipped: back to step {count(event.to_step)} with "
                f"{event.learning_rate_factor:g} times the learning rate.[/yellow]"
            )
        case events.CheckpointsAveraged():
            bleu = "" if event.bleu is None else f", BLEU {event.bleu:.1f}"
            many = "one checkpoint" if len(event.names) == 1 else f"{len(event.names)} checkpoints"
            return f"Average of {many}: validation loss {event.nll:.3f}{bleu}"
        case events.RunEnded():
            return _ENDINGS[event.reason].format(step=count(event.step), elapsed=span(event.elapsed_s))
        case events.CheckpointSaved() if event.write_s > 30:
            return f"[dim]Checkpoint {event.name}: {size(event.size_bytes)} took {span(event.write_s)} to write.[/dim]"
    return ""


_ENDINGS = {
    "finished": "Finished after {step} steps and {elapsed} of training.",
    "patience": "Stopped after {step} steps and {elapsed}: the validation score no longer got better.",
    "interrupted": "Stopped at step {step} after {elapsed}; the same command goes on from there.",
    "diverged": (
        "[bold red]Gave up at step {step}: the loss stayed not finite even at lower rates. Lower "
        "schedule.learning_rate, lengthen schedule.warmup_steps, set optimizer.clip_norm, "
        "or look for broken pairs in the data.[/bold red]"
    ),
}

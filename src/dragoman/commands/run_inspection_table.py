"""Tables of the contents of a run or a checkpoint."""

from pathlib import Path
from typing import Any

from rich.console import Console

from dragoman.model.model_folder import WEIGHTS_FILE
from dragoman.number_format import count, size, span
from dragoman.telemetry.event_messages import describe_origin
from dragoman.terminal import table
from dragoman.training.snapshot import OPTIMIZER_FILE


def show_run_or_checkpoint(content: dict[str, Any], console: Console) -> None:
    if "run" in content:
        _show_run(content, console)
    else:
        _show_checkpoint(content, console)


def _show_run(content: dict[str, Any], console: Console) -> None:
    progress = f"step {count(content['step'])} of {count(content['steps'])}, {content['state']}"
    console.print(
        f"[bold]{Path(content['run']).name}[/bold]  {progress}; {span(content['elapsed_s'])}", highlight=False
    )
    if origin := describe_origin(content["start"]):
        console.print(origin, highlight=False, markup=False)
    if content["error"] is not None:
        console.print(content["error"], style="bold red", highlight=False, markup=False)
    for loss in content["lost"]:
        text = f"Lost {loss['worker']} after step {count(loss['step'])}: {loss['reason']}."
        console.print(text, style="yellow", highlight=False, markup=False)
    console.print()
    if content["evaluations"]:
        rows = table("step", "valid loss", "with smoothing", "BLEU", "chrF", right=(0, 1, 2, 3, 4))
        for done in content["evaluations"][-10:]:
            scores = ("-" if done[name] is None else f"{done[name]:.1f}" for name in ("bleu", "chrf"))
            rows.add_row(count(done["step"]), f"{done['nll']:.3f}", f"{done['loss']:.3f}", *scores)
        console.print(rows)
        console.print()
    by_name: dict[str, list[str]] = {}
    for link, name in content["links"].items():
        by_name.setdefault(name, []).append(link)
    rows = table("checkpoint", "size", "links", right=(1,))
    for checkpoint in content["checkpoints"]:
        name = Path(checkpoint["checkpoint"]).name
        rows.add_row(name, size(checkpoint["bytes"]), ", ".join(by_name.get(name, [])))
    console.print(rows)


def _show_checkpoint(content: dict[str, Any], console: Console) -> None:
    step = "" if content["step"] is None else f"  step {count(content['step'])}"
    parameters = sum(content["parameters"].values())
    console.print(
        f"[bold]{Path(content['checkpoint']).name}[/bold]{step}, {count(parameters)} parameters, "
        f"{size(content['bytes'])}\n",
        highlight=False,
    )
    rows = table("file", "size", "contents", right=(1,))
    for name, file in content["files"].items():
        rows.add_row(name, size(file["bytes"]), file["holds"])
    console.print(rows)
    console.print()
    rows = table("part", "parameters", "share", right=(1, 2))
    for part, number in content["parameters"].items():
        rows.add_row(part, count(number), f"{number / parameters:.1%}")
    console.print(rows)
    if OPTIMIZER_FILE in content["files"]:
        ratio = content["files"][OPTIMIZER_FILE]["bytes"] / content["files"][WEIGHTS_FILE]["bytes"]
        console.print(
            f"\nWeights take 4 bytes per parameter; the optimizer state is {ratio:.1f} times as large.",
            highlight=False,
        )
    if content["damage"]:
        console.print(f"\n[bold red]Damaged: {content['damage']}.[/bold red] Use another checkpoint.", highlight=False)

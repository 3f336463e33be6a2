"""What a run or a checkpoint is made of: what `dragoman inspect` shows of them."""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors import safe_open

from dragoman.errors import DragomanError
from dragoman.events import EvaluationDone, RunEnded, RunStarted, StepDone
from dragoman.files import read_json
from dragoman.model.model_folder import MODEL_FILE, WEIGHTS_FILE
from dragoman.number_format import count, size, span
from dragoman.run_folder import CHECKPOINT_FILES, RunFolder
from dragoman.terminal import table
from dragoman.training.checkpoint import (
    AVERAGED,
    BEST_BLEU,
    BEST_LOSS,
    CHECKSUMS_FILE,
    LAST,
    OPTIMIZER_FILE,
    STATE_FILE,
    find_damage,
    names,
)


def as_json(path: Path) -> dict[str, Any]:
    """All that is shown, for scripts."""
    if (path / MODEL_FILE).exists():
        return _checkpoint(path)
    run = RunFolder(path)
    if not run.config.exists():
        raise DragomanError(f"{path} is no data set, run or checkpoint: check the path.")
    events = run.events()
    steps = [event for event in events if isinstance(event, StepDone)]
    return {
        "run": str(path),
        "started": [event.at_s for event in events if isinstance(event, RunStarted)],
        "ended": next((event.reason for event in reversed(events) if isinstance(event, RunEnded)), None),
        "step": steps[-1].step if steps else 0,
        "steps": read_json(run.config)["settings"]["training"]["steps"],
        "training_s": sum(step.step_s for step in steps),
        "evaluations": [
            {"step": event.step, "loss": event.loss, "nll": event.nll, "bleu": event.bleu, "chrf": event.chrf}
            for event in events
            if isinstance(event, EvaluationDone)
        ],
        "checkpoints": [_checkpoint(run.checkpoints / name) for name in names(run.checkpoints)],
        "links": {
            link: (run.checkpoints / link).resolve().name
            for link in (LAST, BEST_LOSS, BEST_BLEU, AVERAGED)
            if (run.checkpoints / link).exists()
        },
    }


def _checkpoint(folder: Path) -> dict[str, Any]:
    files = {
        file.name: {"bytes": file.stat().st_size, "holds": CHECKPOINT_FILES.get(file.name, "")}
        for file in sorted(folder.iterdir())
    }
    numbers: Counter[str] = Counter()
    with safe_open(folder / WEIGHTS_FILE, "pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (no mapping: it has no iterator)
            shape = weights.get_slice(name).get_shape()
            product = 1
            for extent in shape:
                product *= extent
            numbers[name.partition(".")[0]] += product
    return {
        "checkpoint": str(folder),
        "step": read_json(folder / STATE_FILE)["step"] if (folder / STATE_FILE).exists() else None,
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
        "parameters": dict(numbers),
        "damage": find_damage(folder) if (folder / CHECKSUMS_FILE).exists() else None,
    }


def show(path: Path, console: Console) -> None:
    """The same for people."""
    content = as_json(path)
    if "run" in content:
        _show_run(content, console)
    else:
        _show_checkpoint(content, console)


def _show_run(content: dict[str, Any], console: Console) -> None:
    progress = f"step {count(content['step'])} of {count(content['steps'])}, {content['ended'] or 'not ended'}"
    console.print(
        f"[bold]{Path(content['run']).name}[/bold]  {progress}; {span(content['training_s'])} in steps\n",
        highlight=False,
    )
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
    rows = table("checkpoint", "size", "is", right=(1,))
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
    rows = table("file", "size", "holds", right=(1,))
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
            f"\nWeights take 4 bytes a parameter; the optimizer remembers {ratio:.1f} times as much again.",
            highlight=False,
        )
    if content["damage"]:
        console.print(f"\n[bold red]Damaged: {content['damage']}.[/bold red] Use another checkpoint.", highlight=False)

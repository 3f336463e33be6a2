"""`dragoman demo`: the full pipeline on a generated corpus that needs no download."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.command_line import command_line
from dragoman.commands.next_commands import show_next_commands
from dragoman.commands.typer_app import escape, open_console

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.corpus.dataset import DataSet
    from dragoman.decoding.line_translator import LineTranslator

RECIPE = "demo"
EXAMPLES = (
    ("The old teacher reads a long book in the garden.", "Der alte Lehrer liest ein langes Buch im Garten."),
    (
        "Why did the children not eat the soup yesterday?",
        "Warum haben die Kinder die Suppe gestern nicht gegessen?",
    ),
    (
        "Tomorrow my sister will give the doctor a red umbrella.",
        "Morgen wird meine Schwester dem Arzt einen roten Regenschirm geben.",
    ),
    (
        "He has to call the friendly engineer because the car is expensive.",
        "Er muss den freundlichen Ingenieur anrufen, weil das Auto teuer ist.",
    ),
    (
        "On 3 May 2021 the students bought twelve apples.",
        "Am 3. Mai 2021 haben die Studenten zwölf Äpfel gekauft.",
    ),
)
"""English sentences that the demo translates, with their references. None of them is in the training data."""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the data and the run.")] = Path("runs/demo"),
    workers: Annotated[int, typer.Option(min=1, max=64, help="Workers on this machine.")] = 2,
    seed: Annotated[int, typer.Option(min=0, max=10**9, help="Seed of the weights and of the batches.")] = 1,
) -> None:
    """Run the full pipeline on a small generated corpus: prepare, train, score, translate, report.

    It takes two to three minutes on two cores. An interrupted demo resumes.

    **Examples**

        dragoman demo

        dragoman demo --out runs/second --seed 2
    """
    import torch  # noqa: F401 (where it is not installed, say so before anything is prepared)

    run(out, workers, open_console(), [f"training.seed={seed}", f"batch.seed={seed}"])


def run(out: Path, workers: int, console: "Console", overrides: Sequence[str] = ()) -> None:
    """Prepare, train, score, translate and report, with a heading and the equivalent command for each."""
    from dragoman.commands.dataset_table import show_splits
    from dragoman.commands.report import write_report
    from dragoman.number_format import span
    from dragoman.terminal import progress_bars

    started = time.perf_counter()
    data_path, run_path = out / "data", out / "run"

    _heading(console, "1. Prepare", f"dragoman prepare demo --recipe {RECIPE} --out {data_path}")
    with progress_bars(console) as progress:
        prepared = pipeline.prepare(
            "demo", data_path, recipe=RECIPE, settings=overrides, workers=workers, progress=progress
        )
    data = prepared.dataset
    show_splits(data, console)

    training = command_line("train", RECIPE, "--data", data_path, "--out", run_path, "--workers", str(workers))
    _heading(console, "2. Train", training)
    trained = pipeline.train(RECIPE, data_path, run_path, settings=overrides, workers=workers)
    if trained.reason == "interrupted":
        console.print("Run the same command again to resume.")
        return

    _heading(console, "3. Score", command_line("score", run_path, "--data", data_path))
    translator = pipeline.load(run_path)
    _score(translator, data, console)

    _heading(console, "4. Translate", command_line("translate", run_path))
    for (source, _), text in zip(EXAMPLES, translator.translate([source for source, _ in EXAMPLES]), strict=True):
        console.print(f"  {escape(source)}\n  [bold]{escape(text)}[/bold]\n", highlight=False)

    _heading(console, "5. Understand", command_line("report", run_path))
    write_report([run_path], None, console)

    console.print(f"\nThis took {span(time.perf_counter() - started)}.", highlight=False)
    commands = {
        command_line("translate", run_path): "translate your own sentences",
        command_line("watch", run_path): "open the report as a live page",
        command_line("inspect", run_path): "list evaluations and checkpoints",
        f"tensorboard --logdir {run_path}": "plot the curves",
        "dragoman prepare --list": "list corpora for real training",
    }
    show_next_commands(commands, console)


def _score(translator: "LineTranslator", data: "DataSet", console: "Console") -> None:
    from dragoman.decoding import scoring
    from dragoman.terminal import progress_bars

    sources, references = data.text("test")
    translations: list[str] = []
    with progress_bars(console) as progress:
        for translation in translator.translate_stream(sources, look_ahead=100):
            translations.append(translation.text)
            progress("Translating the test set", len(translations), len(sources))
    score = scoring.score(translations, references)
    exact = sum(ours == reference for ours, reference in zip(translations, references, strict=True))
    console.print(
        f"On {len(sources)} test sentences with word combinations that are not in the training data: "
        f"[bold]BLEU {score.bleu.value:.1f}[/bold], chrF {score.chrf.value:.1f}; {exact} equal the reference.",
        highlight=False,
    )


def _heading(console: "Console", title: str, command: str) -> None:
    console.print(f"\n[bold]{title}[/bold]  [dim]{escape(command)}[/dim]", highlight=False)

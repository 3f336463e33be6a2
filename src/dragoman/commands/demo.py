"""`dragoman demo`: the whole road on a corpus that needs no download, with a word on each part of it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.typer_app import escape, open_console

if TYPE_CHECKING:
    from rich.console import Console

RECIPE = "tiny"
SENTENCES = (
    "The old teacher reads a long book in the garden.",
    "Why did the children not eat the soup yesterday?",
    "Tomorrow my sister will give the doctor a red umbrella.",
    "He must call the friendly engineer because the car is too expensive.",
    "On 3 May 2021 three students bought 17 apples.",
)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the data and the run.")] = Path("runs/demo"),
    workers: Annotated[int, typer.Option(min=1, max=64, help="Workers on this machine.")] = 2,
) -> None:
    """Walk the whole road on a small corpus: prepare, train, evaluate, translate. A few minutes on two cores.

    **Example**

        dragoman demo
    """
    run(out, workers, open_console())


def run(out: Path, workers: int, console: "Console", overrides: Sequence[str] = ()) -> None:
    """Prepare, train, score, translate and report. A demo that was interrupted goes on."""
    from dragoman.commands.dataset_table import show_splits
    from dragoman.commands.report import write_report
    from dragoman.corpus import catalog
    from dragoman.corpus.dataset import DataSet
    from dragoman.corpus.preparation import prepare
    from dragoman.decoding import scoring
    from dragoman.decoding.translator import load
    from dragoman.decoding.validation_scorer import make_scorer
    from dragoman.launch import local_launcher
    from dragoman.number_format import span
    from dragoman.recipe import resolve
    from dragoman.terminal import progress_bars, table
    from dragoman.training.worker import TrainingJob

    started = time.perf_counter()
    settings = resolve(RECIPE, overrides).settings
    data_path, run_path = out / "data", out / "run"

    _heading(console, "1. Prepare", f"dragoman prepare demo --recipe {RECIPE} --out {data_path}")
    with progress_bars(console) as progress:
        prepare(catalog.resolve("demo"), data_path, settings, workers=workers, progress=progress)
    data = DataSet(data_path)
    show_splits(data, console)

    _heading(console, "2. Train", f"dragoman train {RECIPE} --data {data_path} --out {run_path} --workers {workers}")
    reason = local_launcher.train(
        TrainingJob(settings, data_path, run_path, local_launcher.worker_threads(workers)), workers, make_scorer
    )
    if reason == "interrupted":
        console.print("The same command goes on from here.")
        return

    _heading(console, "3. Score", f"dragoman score {run_path} --data {data_path}")
    translator = load(run_path)
    sources, references = data.text("test")
    translations: list[str] = []
    with progress_bars(console) as progress:
        for translation in translator.translate_stream(sources, look_ahead=100):
            translations.append(translation.text)
            progress("Translating the test set", len(translations), len(sources))
    found = scoring.score(translations, references)
    exact = sum(mine == theirs for mine, theirs in zip(translations, references, strict=True))
    console.print(
        f"On {len(sources)} sentences with combinations of words that it has never seen: "
        f"[bold]BLEU {found.bleu.value:.1f}[/bold], chrF {found.chrf.value:.1f}; {exact} are the reference exactly.",
        highlight=False,
    )

    _heading(console, "4. Translate", f"dragoman translate {run_path}")
    for source, text in zip(SENTENCES, translator.translate(SENTENCES), strict=True):
        console.print(f"  {escape(source)}\n  [bold]{escape(text)}[/bold]\n", highlight=False)

    _heading(console, "5. Understand", f"dragoman report {run_path}")
    write_report([run_path], None, console)

    console.print(f"\nThat took {span(time.perf_counter() - started)}. What next:", highlight=False)
    following = table("", "")
    following.show_header = False
    following.add_row(f"  dragoman translate {run_path}", "type sentences of your own")
    following.add_row(f"  dragoman watch {run_path}", "the report as a live page")
    following.add_row(f"  dragoman inspect {run_path}", "what the run is made of")
    following.add_row(f"  tensorboard --logdir {run_path}", "its curves")
    following.add_row("  dragoman prepare --list", "corpora to train on in earnest")
    console.print(following)


def _heading(console: "Console", title: str, command: str) -> None:
    console.print(f"\n[bold]{title}[/bold]  [dim]{escape(command)}[/dim]", highlight=False)

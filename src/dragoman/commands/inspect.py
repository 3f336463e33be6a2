"""`dragoman inspect`: the contents of a data set, run, checkpoint or export."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    AsJson,
    open_console,
    print_json,
)
from dragoman.errors import DragomanError


def inspect(
    path: Annotated[Path, typer.Argument(help="A data set, run, checkpoint or export.", show_default=False)],
    samples: Annotated[
        bool, typer.Option("--samples", help="Show samples of the pairs that each rule of a data set dropped.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the contents of a data set, run, checkpoint or export, with sizes.

    **Examples**

        dragoman inspect data/demo

        dragoman inspect runs/demo/run/checkpoints/last
    """
    from dragoman.corpus.dataset import MANIFEST_FILE

    if (path / MANIFEST_FILE).exists():
        from dragoman.corpus.dataset import DataSet

        if as_json:
            from dragoman.corpus import dataset_summary

            print_json(dataset_summary.as_json(DataSet(path)))
        else:
            from dragoman.commands.dataset_table import show_dataset, show_samples

            console = open_console()
            show_dataset(DataSet(path), console)
            if samples:
                show_samples(DataSet(path), console)
        return
    from dragoman.exporting.export_summary import describe_export, is_export

    if is_export(path):
        content = describe_export(path)
        if as_json:
            print_json(content)
        else:
            from dragoman.commands.export_table import show_export

            show_export(content, open_console())
    else:
        from dragoman.training.run_inspection import describe

        _refer_to_report(path)
        content = describe(path)
        if "run" in content:
            from dragoman.insight.run_progress import describe_progress

            content |= describe_progress(path)
        if as_json:
            print_json(content)
        else:
            from dragoman.commands.run_inspection_table import show_run_or_checkpoint

            show_run_or_checkpoint(content, open_console())


def _refer_to_report(path: Path) -> None:
    """Raise an error for the folders of `synthesize` and `distill`, which `report` describes."""
    from dragoman.insight.distillation_report import is_distillation
    from dragoman.insight.synthesis_history import is_synthesis

    if is_synthesis(path) or is_distillation(path):
        kind = "synthetic corpus" if is_synthesis(path) else "distillation"
        raise DragomanError(f"{path} is a {kind}: run `dragoman report {path}` for its parts, time and pairs.")

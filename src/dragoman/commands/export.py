"""`dragoman export`: a trained model in another format."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.command_line import command_line
from dragoman.commands.typer_app import AsJson, open_console, print_json

if TYPE_CHECKING:
    from rich.console import Console


def export(
    model: Annotated[
        Path, typer.Argument(help="Run, checkpoint, or folder of OPUS-MT, M2M100 or NLLB.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder or .argosmodel file to write.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="ctranslate2, argos, huggingface or safetensors.")] = "ctranslate2",
    quantization: Annotated[
        str | None, typer.Option(help="For ctranslate2 and argos: int8 (default), int8_float32, float16, float32, ...")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Data set that the model was trained on, for the model card.")
    ] = None,
    dollars_per_hour: Annotated[
        float | None, typer.Option("--dollars-per-hour", min=0, help="Price of each machine, for the model card.")
    ] = None,
    license_id: Annotated[
        str, typer.Option("--license", help="Licence of the weights for the model card, such as cc-by-4.0 or mit.")
    ] = "unknown",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export a model with a model card: for CTranslate2 (fast on CPUs), Argos, Hugging Face, or as plain weights.

    `translate`, `score` and `dragoman.load` accept the folder as they accept a run. Argos Translate installs its
    package, and LibreTranslate serves it.

    **Examples**

        dragoman export runs/demo/run --to ctranslate2 --out models/demo

        dragoman export runs/demo/run --to argos --out models/demo.argosmodel

        dragoman export runs/base --to huggingface --out models/base-hf --data data/wmt16 --license cc-by-4.0
    """
    from dragoman.decoding.ctranslate2_translator import CARD_FILE

    pipeline.export(
        model, out, to, quantization=quantization, data=data, dollars_per_hour=dollars_per_hour, license_id=license_id,
        overwrite=overwrite,
    )  # fmt: skip
    if as_json:
        from dragoman.exporting.export_summary import describe_export

        print_json(describe_export(out))
        return
    console = open_console(optional=True)
    print_file_sizes(out, console)
    use = f"try `{command_line('translate', out)}`. Model card: {out / CARD_FILE}."
    if to == "argos":
        use = "install it with Argos Translate's `package.install_from_path`. It contains the model card."
    console.print(f"{out} is ready: {use}", highlight=False, soft_wrap=True)


def print_file_sizes(folder: Path, console: "Console") -> None:
    """Print the files of an export with their sizes."""
    from dragoman.exporting.exporter import file_sizes
    from dragoman.number_format import size
    from dragoman.terminal import table

    rows = table("file", "size", right=(1,))
    for name, size_bytes in file_sizes(folder).items():
        rows.add_row(name, size(size_bytes))
    console.print(rows)

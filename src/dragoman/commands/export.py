"""`dragoman export`: a trained model in another format."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[Path, typer.Argument(help="A run, a checkpoint or a model folder.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; whole or absent.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="ctranslate2, huggingface or safetensors.")] = "ctranslate2",
    quantization: Annotated[
        str | None, typer.Option(help="For ctranslate2: int8 (the default), int8_float32, float16, float32, ...")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The data set it learned from, for its card.")] = None,
    dollars_per_hour: Annotated[
        float | None, typer.Option("--dollars-per-hour", min=0, help="Price of each machine, for its card.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
) -> None:
    """Make a model ready to leave: for CTranslate2 (fast on CPUs), for Hugging Face, or as bare weights; with its card.

    `translate`, `score` and `dragoman.load` take the folder as they take a run; so does the library it was made for.

    **Examples**

        dragoman export runs/demo/run --to ctranslate2 --out models/demo

        dragoman export runs/base --to huggingface --out models/base-hf --data data/wmt16 --dollars-per-hour 2.5
    """
    from dragoman.decoding import terminal

    terminal.export(model, out, to, quantization, data, dollars_per_hour, overwrite=overwrite)

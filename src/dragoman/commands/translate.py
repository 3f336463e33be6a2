"""`dragoman translate`: text in, text out."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.errors import DragomanError


def translate(
    model: Annotated[Path, typer.Argument(help="A run, a checkpoint or a model folder.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] [key=value]...", help="Text, a line each; else standard input."),
    ] = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, max=100, help="Translations of each line.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Write each translation's score before it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object for each line.")] = False,
) -> None:
    """Translate text: a file, a pipe, or what you type.

    As many lines come out as went in. Decoding settings are changed by key=value.

    **Examples**

        dragoman translate runs/demo/run

        dragoman translate runs/demo/run news.en > news.de

        echo "The teacher reads a book." | dragoman translate runs/demo/run decoding.beam=8 --n-best 3 --scores
    """
    from dragoman.decoding import terminal

    files = [word for word in words or [] if "=" not in word or Path(word).exists()]
    overrides = [word for word in words or [] if word not in files]
    if len(files) > 1:
        raise DragomanError(f"One file at a time, not {len(files)}: join them with cat, and pipe that in.")
    terminal.translate(model, files[0] if files else "-", overrides, n_best=n_best, scores=scores, as_json=as_json)

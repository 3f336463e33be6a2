"""What a trained model is good for: translating, being judged, leaving, serving."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import AsJson, open_console
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


def score(
    systems: Annotated[list[str], typer.Argument(help="One or two: a run or model, or a file of translations.")],
    source: Annotated[Path | None, typer.Option("--src", help="Source text, for models to translate.")] = None,
    reference: Annotated[Path | None, typer.Option("--ref", help="Reference translations.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Take both from this data set instead.")] = None,
    split: Annotated[str, typer.Option("--split", help="Which set of --data: test or valid.")] = "test",
    compare: Annotated[bool, typer.Option("--compare", help="Insist on two systems and compare them.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page of where two systems differ most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score translations with sacreBLEU and chrF, or compare two systems by paired bootstrap.

    **Examples**

        dragoman score runs/demo/run --data runs/demo/data

        dragoman score runs/base --src newstest2014.en --ref newstest2014.de

        dragoman score --compare runs/old runs/new --data data/demo --html differences.html
    """
    from dragoman.decoding import terminal

    terminal.score(systems, source, reference, data, split, compare=compare, html=html, as_json=as_json)


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


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(help="Exports, runs or checkpoints, of any directions.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is reached from here alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765,
    threads: Annotated[int, typer.Option(min=0, max=256, help="Cores for a batch; 0 leaves it to CTranslate2.")] = 0,
    keys: Annotated[Path | None, typer.Option(help="File of hashed API keys; without it none is asked for.")] = None,
    new_key: Annotated[
        str | None, typer.Option("--new-key", metavar="NAME", help="Add a key to --keys, show it once, and leave.")
    ] = None,
    max_characters: Annotated[int, typer.Option(min=1, max=10**7, help="Longest text of a request.")] = 20_000,
    max_requests: Annotated[int, typer.Option(min=1, max=10_000, help="Requests under way at once.")] = 64,
    requests_per_minute: Annotated[int, typer.Option(min=0, help="Of one client; 0 is no limit.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may take.")] = 30.0,
) -> None:
    """Serve models to people and programs: a page to type into, and LibreTranslate's HTTP API.

    **Examples**

        dragoman serve models/en-de models/de-en

        dragoman serve --keys keys.txt --new-key alice

        dragoman serve models/en-de --host 0.0.0.0 --keys keys.txt --requests-per-minute 120
    """
    from dragoman.serving.limits import Limits, make_key

    if new_key is not None:
        if keys is None:
            raise DragomanError("--new-key needs the file to add it to: give --keys FILE.")
        typer.echo(make_key(keys, new_key))
        return
    if not models:
        raise DragomanError("serve needs a model: for example `dragoman serve runs/demo/run`.")
    from dragoman.serving.http_server import run

    limits = Limits(
        max_characters=max_characters,
        max_requests=max_requests,
        requests_per_minute=requests_per_minute,
        timeout_s=timeout,
    )
    run(models, host=host, port=port, threads=threads, limits=limits, keys=keys, console=open_console(stderr=True))

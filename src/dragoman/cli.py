"""The verbs. Each imports what it needs when it is called, so that `dragoman --help` answers at once."""

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman import __version__
from dragoman.errors import EXIT_MISTAKE, DragomanError

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.corpus.catalog import Corpus

EXIT_INTERRUPTED = 130
CORPUS_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(/[A-Za-z-]+)?|.+\.toml(/[A-Za-z-]+)?")

app = typer.Typer(
    name="dragoman",
    help="Train translation models across whatever machines you have, and know what limits the run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead of tables.")]


def main() -> None:
    """Run a command. What a user can mend is told in a sentence; a traceback means a fault of ours."""
    try:
        app(standalone_mode=True)
    except DragomanError as error:
        _fail(str(error), EXIT_MISTAKE)
    except _InterruptedError as interrupted:
        _fail(str(interrupted), EXIT_INTERRUPTED)
    except BrokenPipeError:  # `dragoman inspect DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


class _InterruptedError(Exception):
    """Ctrl-C, with what the user may want to know."""


def _fail(message: str, code: int) -> None:
    from rich.console import Console

    Console(stderr=True).print(f"[bold red]error:[/bold red] {_escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Hold options that belong to no verb."""


@app.command()
def prepare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="A corpus of the catalog, a corpus description (.toml), files, or - ; and key=value.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the data set to make.")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="Validation set: a file, or two as A,B.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Test set: a file, or two as A,B.")] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Direction, such as en-de, where names do not tell.")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="Format of the files, where names do not tell.")
    ] = None,
    mirror: Annotated[
        Path | None, typer.Option("--from", help="Folder with the downloads, used instead of the network.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A SentencePiece .model to use instead of training one.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe whose corpus settings to use.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes; by default one for each core.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data set that was made otherwise.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the corpora of the catalog.")] = False,
) -> None:
    """Turn text into a cleaned, tokenized, memory-mapped data set.

    The same inputs and settings give the same bytes. An interrupted run goes on where it was.

    **Examples**

        dragoman prepare demo --out data/demo

        dragoman prepare wmt16-en-de --out data/wmt16

        dragoman prepare news.en.xz news.de.xz --valid dev.en,dev.de --out data/news

        dragoman prepare own.tmx crawl.tsv@0.5 -l en-de --out data/own cleaning.max_words=100
    """
    from dragoman import config
    from dragoman.corpus.dataset import DataSet
    from dragoman.corpus.prepare import prepare as make
    from dragoman.corpus.summary import show_splits
    from dragoman.terminal import progress_bars

    if listing:
        _list_corpora()
        return
    words = inputs or []
    overrides = [word for word in words if "=" in word and not Path(word).exists()]
    named = [word for word in words if word not in overrides]
    settings = config.resolve(recipe, overrides).settings
    if not named or out is None:
        raise DragomanError("prepare needs a corpus and --out: for example `dragoman prepare demo --out data/demo`.")
    try:
        with progress_bars(_console(stderr=True)) as progress:
            corpus = _find_corpus(named, valid or [], test or [], languages, file_format, mirror, progress)
            count = workers or len(os.sched_getaffinity(0))
            made = make(
                corpus, out, settings, workers=count, tokenizer=tokenizer, overwrite=overwrite, progress=progress
            )
    except KeyboardInterrupt:
        raise _InterruptedError("interrupted: the same command goes on where it was.") from None
    console = _console()
    console.print(f"{out} {'is ready' if made else 'was ready already'}.", highlight=False)
    show_splits(DataSet(out), console)
    console.print(f"Look closer with `dragoman inspect {out}`.", highlight=False)


def _find_corpus(
    named: list[str], valid: list[str], test: list[str], languages: str | None, file_format: str | None,
    mirror: Path | None, progress: Any,
) -> "Corpus":  # fmt: skip
    from dragoman.corpus import catalog
    from dragoman.corpus.sources import Languages, sources_from_arguments

    direction = None
    if languages is not None:
        parts = languages.split(":" if ":" in languages else "-")
        if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
            raise DragomanError(f"--languages {languages} is not a direction: write it as en-de, or en-GB:pt-BR.")
        direction = Languages(*parts)
    described = next((word for word in named if CORPUS_NAME.fullmatch(word) and not Path(word).exists()), None)
    described = described or next((word for word in named if word.endswith(".toml")), None)
    if described is not None:
        if len(named) > 1 or valid or test or file_format:
            raise DragomanError(
                f"{described} cannot be mixed with files: describe it all in one TOML file (see docs/prepare.md)."
            )
        turned = f"{described}/{languages}" if languages else described
        return catalog.resolve(turned, mirror=mirror, progress=progress)
    if mirror is not None:
        raise DragomanError("--from is a mirror of a named corpus; files are given by their own paths.")
    train, direction = sources_from_arguments(named, direction, file_format)
    valid_sources, _ = sources_from_arguments(valid, direction, None) if valid else ([], None)
    test_sources, _ = sources_from_arguments(test, direction, None) if test else ([], None)
    name = train[0].name if len(train) == 1 else f"{train[0].name} and {len(train) - 1} more"
    return catalog.Corpus(name, direction, tuple(train), tuple(valid_sources), tuple(test_sources))


def _list_corpora() -> None:
    from dragoman.corpus import catalog

    console = _console()
    for description in catalog.describe():
        console.print(f"[bold]{description.name}[/bold]  {description.about}", highlight=False)
        if len(description.pairs) > 1:
            console.print(f"  as {', '.join(description.names)}", highlight=False, style="dim")
        for licence in description.licences:
            console.print(f"  {_escape(licence)}", highlight=False, style="dim")


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or the path of a TOML file.", show_default=False)],
    data: Annotated[Path, typer.Option("--data", help="A prepared data set.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run; an earlier one goes on.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value", show_default=False)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Workers here; by default one a GPU, or one.")
    ] = None,
) -> None:
    """Train a model, or go on with a run that was interrupted.

    Ctrl-C ends the step, saves and leaves; the same command goes on, exactly. A second Ctrl-C leaves at once.

    **Examples**

        dragoman train tiny --data data/demo --out runs/demo --workers 2

        dragoman train transformer-base --data data/wmt16 --out runs/base training.steps=100000
    """
    from dragoman import config
    from dragoman.corpus.dataset import DataSet
    from dragoman.launch import local, scheduler
    from dragoman.training.session import Job

    scheduler.join_world()
    settings = config.resolve(recipe, overrides or []).settings
    DataSet(data).pairs("valid")
    count = workers or local.default_workers()
    reason = local.train(Job(settings, data, out, local.worker_threads(count)), count)
    if reason == "diverged":
        raise typer.Exit(1)


@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    words: Annotated[list[str], typer.Argument(metavar="-- train RECIPE ...", help="What to run on all of them.")],
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines, as ssh knows them: a,b:2,user@c:4 (workers after the colon).")
    ],
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Go on without machines that are lost, and with those that come back.")
    ] = False,
    push: Annotated[bool, typer.Option("--push", help="Copy data set and recipe there first, with rsync.")] = False,
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", help="Configuration for ssh, instead of your own.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="Python that has Dragoman there; by default as here.", show_default=False)
    ] = sys.executable,
) -> None:
    """Train on several machines, reached by ssh.

    Before anything starts, all machines are compared; what differs is named with its remedy. The first keeps the run.
    Ctrl-C lets all end their step and save; the same command goes on, also with other machines.

    **Examples**

        dragoman launch --hosts a,b -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts a,b,c --elastic -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts localhost,big:4 --push -- train small --data data/own --out runs/own training.steps=9000
    """
    from dragoman import config
    from dragoman.launch import launcher
    from dragoman.launch.order import Order
    from dragoman.launch.ssh import Client, parse_hosts

    if words[0] != "train":
        raise DragomanError(
            f"launch runs train, not {words[0]}: write `dragoman launch --hosts a,b -- train RECIPE ...`."
        )
    given = typer.main.get_group(app).commands["train"].make_context("train", words[1:]).params
    if given["workers"] is not None:
        raise DragomanError(
            "--workers is for one machine: write the workers of each after its name, as in --hosts a:2,b:2."
        )
    overrides = given["overrides"] or []
    order = Order(
        machines=parse_hosts(hosts), recipe=given["recipe"], data=given["data"], out=given["out"],
        overrides=overrides, settings=config.resolve(given["recipe"], overrides).settings, push=push,
        elastic=elastic,
    )  # fmt: skip
    try:
        reason = launcher.launch(order, Client(ssh_config, python), _console())
    except KeyboardInterrupt:
        raise _InterruptedError("interrupted before anything was started.") from None
    if reason == "diverged":
        raise typer.Exit(1)


@app.command()
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

        dragoman translate runs/demo

        dragoman translate runs/demo news.en > news.de

        echo "The teacher reads a book." | dragoman translate runs/demo decoding.beam=8 --n-best 3 --scores
    """
    from dragoman.decoding import terminal

    files = [word for word in words or [] if "=" not in word or Path(word).exists()]
    overrides = [word for word in words or [] if word not in files]
    if len(files) > 1:
        raise DragomanError(f"One file at a time, not {len(files)}: join them with cat, and pipe that in.")
    terminal.translate(model, files[0] if files else "-", overrides, n_best=n_best, scores=scores, as_json=as_json)


@app.command()
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

        dragoman score runs/demo --data data/demo

        dragoman score runs/base --src newstest2014.en --ref newstest2014.de

        dragoman score --compare runs/old runs/new --data data/demo --html differences.html
    """
    from dragoman.decoding import terminal

    terminal.score(systems, source, reference, data, split, compare=compare, html=html, as_json=as_json)


@app.command()
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

        dragoman export runs/demo --to ctranslate2 --out models/demo

        dragoman export runs/base --to huggingface --out models/base-hf --data data/wmt16 --dollars-per-hour 2.5
    """
    from dragoman.decoding import terminal

    terminal.export(model, out, to, quantization, data, dollars_per_hour, overwrite=overwrite)


@app.command()
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
    from dragoman.serving.server import run

    limits = Limits(
        max_characters=max_characters,
        max_requests=max_requests,
        requests_per_minute=requests_per_minute,
        timeout_s=timeout,
    )
    run(models, host=host, port=port, threads=threads, limits=limits, keys=keys, console=_console(stderr=True))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the data and the run.")] = Path("runs/demo"),
    workers: Annotated[int, typer.Option(min=1, max=64, help="Workers on this machine.")] = 2,
) -> None:
    """Walk the whole road on a small corpus: prepare, train, evaluate, translate. A few minutes on two cores.

    **Example**

        dragoman demo
    """
    from dragoman.launch.demo import run

    run(out, workers, _console())


@app.command()
def doctor(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [key=value]...", help="What is to be trained; by default transformer-base."),
    ] = None,
    hosts: Annotated[str, typer.Option("--hosts", help="Machines, as for launch; by default this one.")] = "localhost",
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", help="Answer for other machines too: link=1gbit,hosts=4,exchange=bf16"),
    ] = None,
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", help="Configuration for ssh, instead of your own.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="Python that has Dragoman there; by default as here.", show_default=False)
    ] = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Before the money is spent: measure these machines, and say how long a recipe will take and what limits it.

    Ends with exit code 1 where the plan is not sensible: where most of the time would be spent waiting, or one machine
    alone would be faster.

    **Examples**

        dragoman doctor tiny

        dragoman doctor --hosts a,b transformer-base --what-if link=1gbit --what-if hosts=4,exchange=bf16
    """
    from dragoman import config
    from dragoman.launch import doctor as doctors
    from dragoman.launch.ssh import Client, parse_hosts

    recipes = [word for word in words or [] if "=" not in word]
    overrides = [word for word in words or [] if "=" in word]
    if len(recipes) > 1:
        raise DragomanError(f"One recipe at a time, not {' and '.join(recipes)}: settings are written key=value.")
    recipe = recipes[0] if recipes else "transformer-base"
    settings = config.resolve(recipe, overrides).settings
    client = Client(ssh_config, python)
    found, diagnoses = doctors.consult(parse_hosts(hosts), recipe, overrides, settings, client, what_if or [])
    if as_json:
        _print_json(doctors.as_json(found, diagnoses, settings))
    else:
        doctors.show(found, diagnoses, settings, _console())
    if not diagnoses[""].sensible:
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="A run; more than one to compare them.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default report.html in the run's folder.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the answers as Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what happened in a run and what limited it: one HTML file that needs nothing else.

    **Examples**

        dragoman report runs/base

        dragoman report runs/base runs/bf16 --out comparison.html

        dragoman report runs/base --markdown > notes.md
    """
    from dragoman.insight import report as reports

    if as_json:
        contents = [reports.read_digest(run) for run in runs]
        _print_json(contents[0] if len(contents) == 1 else contents)
    elif markdown:
        typer.echo("\n".join(reports.as_markdown(reports.read_digest(run)) for run in runs), nl=False)
    else:
        reports.report(runs, out, _console())


@app.command()
def watch(
    runs: Annotated[list[Path], typer.Argument(help="Runs to show, beside each other.", show_default=False)],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's own need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8090,
) -> None:
    """Show running or finished runs on a live page.

    The page belongs to the reader: closing it, or ending this command, does not touch the training.

    **Examples**

        dragoman watch runs/base

        dragoman watch runs/base runs/bf16 --host 0.0.0.0 --port 8090
    """
    from dragoman.insight.watch import serve

    serve(runs, host, port, _console())


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A data set, a run, a checkpoint or an export.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what a data set, a run, a checkpoint or an export is made of, with sizes.

    **Examples**

        dragoman inspect data/demo

        dragoman inspect runs/demo/checkpoints/last
    """
    from dragoman.corpus.dataset import MANIFEST_FILE

    if (path / MANIFEST_FILE).exists():
        from dragoman.corpus import summary
        from dragoman.corpus.dataset import DataSet

        data = DataSet(path)
        summary.show(data, _console()) if not as_json else _print_json(summary.as_json(data))
        return
    from dragoman.decoding.exported import CARD_FILE, DESCRIPTION_FILE

    if (path / CARD_FILE).exists() and (path / DESCRIPTION_FILE).exists():
        from dragoman.decoding import terminal

        if as_json:
            _print_json({"export": str(path), "files": terminal.file_sizes(path)})
        else:
            terminal.show_files(path, _console())
    else:
        from dragoman.training.summary import as_json as summarise
        from dragoman.training.summary import show

        show(path, _console()) if not as_json else _print_json(summarise(path))


@app.command("config")
def show_config(
    recipe: Annotated[
        str | None, typer.Argument(help="A shipped recipe or the path of a TOML file.", show_default=False)
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting of a recipe, with its value and where that came from.

    **Examples**

        dragoman config

        dragoman config transformer-base cleaning.max_words=100
    """
    from dragoman import config

    words = [word for word in (recipe, *(overrides or [])) if word is not None]
    recipes = [word for word in words if "=" not in word]
    if len(recipes) > 1:
        raise DragomanError(f"One recipe at a time, not {' and '.join(recipes)}: settings are written key=value.")
    resolved = config.resolve(recipes[0] if recipes else None, [word for word in words if "=" in word])
    if as_json:
        _print_json({row.key: {"value": row.value, "origin": row.origin} for row in resolved.listing()})
        return
    console = _console()
    section = ""
    for row in resolved.listing():
        if row.key.partition(".")[0] != section:
            section = row.key.partition(".")[0]
            console.print(f"\n[bold]{section}[/bold]")
        value = _escape(config.show_value(row.value))
        origin = row.origin if row.origin == "default" else f"[green]{_escape(row.origin)}[/green]"
        console.print(f"  {row.key} = [bold]{value}[/bold]  [dim]{origin}[/dim]", highlight=False)
        console.print(f"      {_escape(row.about)}", style="dim", highlight=False)


if __name__ == "__main__":
    main()

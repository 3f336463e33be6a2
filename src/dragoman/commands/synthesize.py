"""`dragoman synthesize`: texts to a synthetic corpus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman import pipeline
from dragoman.commands.next_commands import show_next_commands
from dragoman.commands.typer_app import AsJson, InterruptedByUserError, escape, open_console, print_json
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.pipeline import SyntheticCorpus

Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT... [key=value]...",
        help="Texts in the model's source language, one sentence per line, plain or compressed; decoding settings.",
        show_default=False,
    ),
]


def synthesize(
    model: Annotated[
        Path, typer.Argument(help="Run, checkpoint, export, or folder of OPUS-MT, M2M100 or NLLB.", show_default=False)
    ],
    texts: Texts,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of the corpus. Resumes if it exists.")],
    back: Annotated[
        bool, typer.Option("--back", help="Back-translation: the translations are the source side of the corpus.")
    ] = False,
    tag: Annotated[str, typer.Option("--tag", help='Word in front of each translation, such as "<BT>".')] = "",
    n_best: Annotated[int, typer.Option("--n-best", min=1, max=100, help="Translations per line.")] = 1,
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines as ssh knows them: a,b,user@c (default: this one).")
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda (default: GPUs if any machine has one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Translate any amount of text into a corpus, every line exactly once, on one machine or several.

    The corpus is two aligned files, `corpus.en` and `corpus.de` for a model from English to German. An interrupted
    command resumes; machines may come and go.

    **Examples**

        dragoman synthesize runs/en-de news.en.xz --out data/news

        dragoman synthesize runs/de-en news.de.xz --back --tag "<BT>" --out data/back

        dragoman synthesize runs/en-de news.en --hosts localhost,big,user@other --out data/news decoding.beam=8
    """
    from dragoman.commands.translate import decoding_settings, split_settings

    files, overrides = split_settings(texts)
    if not files:
        raise DragomanError("synthesize needs a text, for example `dragoman synthesize MODEL news.en --out data/news`.")
    try:
        corpus = pipeline.synthesize(
            model, files, out, back=back, tag=tag, n_best=n_best, device=device, hosts=[hosts] if hosts else (),
            **decoding_settings(overrides),
        )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    if as_json:
        print_json({"corpus": str(out), **corpus.description.as_json()})
    else:
        _show_result(corpus, open_console(optional=True))


def _show_result(corpus: "SyntheticCorpus", console: "Console") -> None:
    from dragoman.number_format import count
    from dragoman.terminal import table

    made = corpus.description.corpus
    rows = table("", "pairs", "example", right=(1,))
    rows.add_row("translated", count(made["translated_pairs"]))
    for rule, dropped in made["dropped"].items():
        rows.add_row(f"dropped: {rule}", count(dropped["pairs"]), escape(" | ".join(dropped["examples"][0][:2])))
    rows.add_row("in the corpus", count(made["kept_pairs"]))
    console.print(f"{corpus.path} is ready: {count(made['read_lines'])} lines.", highlight=False, soft_wrap=True)
    console.print(rows)
    source, target = corpus.files
    show_next_commands({f"dragoman prepare {source} {target} --out DATA": "make a data set of it"}, console)

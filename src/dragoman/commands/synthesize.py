"""`dragoman synthesize`: texts to a synthetic corpus."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman import pipeline
from dragoman.command_line import command_line
from dragoman.commands.next_commands import show_next_commands
from dragoman.commands.typer_app import (
    AsJson,
    InterruptedByUserError,
    RemotePython,
    SshConfig,
    escape,
    open_console,
    print_json,
)
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

ScoreBackWith = Annotated[
    Path | None,
    typer.Option(
        "--score-back-with",
        metavar="MODEL",
        help="Model of the other direction: translations on which both disagree are dropped.",
    ),
]

Temperature = Annotated[
    float | None,
    typer.Option("--temperature", min=0.01, max=100, help="Of --sample: below 1 (default), likely words more often."),
]
TopK = Annotated[int | None, typer.Option("--top-k", min=0, help="Of --sample: likeliest tokens (default: 0, all).")]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Of --sample: another one, other translations (default: 1).")
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
    tag: Annotated[str, typer.Option("--tag", help="Word in front of each translation, such as `<BT>`.")] = "",
    n_best: Annotated[int, typer.Option("--n-best", min=1, max=100, help="Translations per line.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations instead of searching the best.")] = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    seed: Seed = None,
    score_back_with: ScoreBackWith = None,
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines as ssh knows them: a,b,user@c (default: this one).")
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda (default: GPUs if any machine has one).")
    ] = None,
    ssh_config: SshConfig = None,
    python: RemotePython = sys.executable,
    shard_lines: Annotated[
        int | None, typer.Option("--shard-lines", min=1, help="Lines that a machine takes at a time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Translate any amount of text into a corpus, every line exactly once, on one machine or several.

    The corpus is two aligned files, `corpus.en` and `corpus.de` for a model from English to German. An interrupted
    command resumes; machines may come and go.

    **Examples**

        dragoman synthesize runs/en-de news.en.xz --out data/news

        dragoman synthesize runs/de-en news.de.xz --back --tag "<BT>" --out data/back

        dragoman synthesize runs/en-de news.en.xz --score-back-with runs/de-en --out data/news

        dragoman synthesize runs/en-de news.en --hosts localhost,big,user@other --out data/news decoding.beam=8
    """
    from dragoman.commands.translate import split_settings

    files, overrides = split_settings(texts)
    settings, decoding = split_decoding(overrides)
    if not files:
        raise DragomanError("synthesize needs a text, for example `dragoman synthesize MODEL news.en --out data/news`.")
    try:
        corpus = pipeline.synthesize(
            model, files, out, back=back, tag=tag, n_best=n_best, device=device,
            sampling=_sampling(sample=sample, temperature=temperature, top_k=top_k, seed=seed),
            score_back_with=score_back_with, hosts=[hosts] if hosts else (), ssh_config=ssh_config, python=python,
            shard_lines=shard_lines, settings=settings, **decoding,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    if as_json:
        print_json({"corpus": str(out), **corpus.description.as_json()})
    else:
        _show_result(corpus, open_console(optional=True))


def _sampling(*, sample: bool, **options: float | None) -> dict[str, Any] | None:
    """The settings of sampling that were given; None is beam search."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and not sample:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise DragomanError(f"{names} would have no effect without --sample: add it.")
    return given if sample else None


def split_decoding(overrides: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Settings of rules and prices, and the decoding settings."""
    from dragoman.commands.translate import decoding_settings

    others = [override for override in overrides if override.startswith(("cleaning.", "money."))]
    return others, decoding_settings([override for override in overrides if override not in others])


def _show_result(corpus: "SyntheticCorpus", console: "Console") -> None:
    from dragoman.insight.synthesis_summary import summarize_synthesis
    from dragoman.number_format import count
    from dragoman.terminal import table

    made = corpus.description.corpus
    rows = table("", "pairs", "example", right=(1,))
    rows.add_row("translated", count(made["translated_pairs"]))
    for rule, dropped in made["dropped"].items():
        rows.add_row(f"dropped: {rule}", count(dropped["pairs"]), escape(" | ".join(dropped["examples"][0][:2])))
    rows.add_row("in the corpus", count(made["kept_pairs"]))
    overview = summarize_synthesis(corpus.path, time.time())["overview"]
    console.print(f"{corpus.path} is ready. {overview['how']}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"What limited it: {overview['limit']}", highlight=False, markup=False, soft_wrap=True)
    console.print(rows)
    commands = {
        command_line("prepare", corpus.path, "--out", "DATA"): "make a data set of it",
        command_line("report", corpus.path): "machines, speed, cost, dropped pairs",
    }
    show_next_commands(commands, console)

"""`dragoman translate`: text in, text out; or documents in, documents out."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman import pipeline
from dragoman.commands.typer_app import escape, open_console
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.line_translator import LineTranslator, Translation

_SETTING = re.compile(r"[\w.]+=")

Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]... [key=value]...",
        help='Lines of text, plain or compressed (default: standard input), or "a sentence", or documents with --out; '
        "settings.",
    ),
]


def translate(
    model: Annotated[
        Path, typer.Argument(help="Run, checkpoint, export, or folder of OPUS-MT, M2M100 or NLLB.", show_default=False)
    ],
    arguments: Texts = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Translate documents in their own format: a file, or a folder for several."),
    ] = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, max=100, help="Translations per line.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Write the score before each translation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")] = False,
    glossary: Annotated[
        Path | None,
        typer.Option("--glossary", help="Terms and their translations: TSV, or CSV by its name.", show_default=False),
    ] = None,
) -> None:
    """Translate a file, standard input, a sentence, or lines typed at a terminal.

    The output has as many lines as the input. Override decoding settings with key=value.

    With --out, documents are translated in their own format, and only their text changes: .docx, .pptx, .odt, .odp,
    .html, .md, .srt, .vtt, .po, .tmx, .xlf, .txt.

    **Examples**

        dragoman translate runs/demo/run

        dragoman translate runs/demo/run "The teacher reads a book."

        dragoman translate runs/demo/run news.en > news.de

        dragoman translate runs/demo/run news.en --glossary terms.tsv > news.de

        dragoman translate en-de=models/nllb-200-distilled-600M news.en > news.de

        dragoman translate runs/demo/run report.docx --out report.de.docx

        dragoman translate runs/demo/run slides.pptx notes.md film.srt --out translated

        echo "The teacher reads a book." | dragoman translate runs/demo/run decoding.beam=8 --n-best 3 --scores
    """
    from dragoman.commands.glossary_option import show_terms
    from dragoman.decoding.glossary_search import GlossaryTranslator
    from dragoman.documents.file_translation import check_files

    files, overrides = split_settings(arguments or [])
    sentences = files if out is None and all(map(_is_sentence, files)) else []
    if out is None:
        _check_texts(() if sentences else files)
    elif n_best > 1 or scores or as_json:
        raise DragomanError("--n-best, --scores and --json have no effect on documents: leave them out.")
    else:
        check_files(files, out)
    settings = decoding_settings(overrides)
    translator = pipeline.load(model, glossary=glossary, **settings)
    if out is not None:
        _translate_documents(translator, files, out)
    elif sentences:
        _print_all(sentences, translator.translate_scored(sentences, n_best), n_best, scores, as_json)
    elif files in ([], ["-"]) and sys.stdin.isatty():
        _translate_interactively(translator, n_best, scores)
    else:
        _translate_file(translator, files[0] if files else "-", n_best, scores, as_json)
    if isinstance(translator, GlossaryTranslator):
        show_terms(translator)


def split_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files or sentences, and key=value settings."""
    overrides = [argument for argument in arguments if _SETTING.match(argument) and not _exists(argument)]
    return [argument for argument in arguments if argument not in overrides], overrides


def _is_sentence(argument: str) -> bool:
    """True for words that are no file. One word alone is more often the misspelt name of a file."""
    return " " in argument.strip() and not _exists(argument)


def _exists(argument: str) -> bool:
    try:
        return Path(argument).exists()
    except OSError:  # A sentence may be longer than the name of a file can be.
        return False


def _check_texts(arguments: Sequence[str]) -> None:
    """Find what is wrong with arguments that are not all sentences: there may be one file, and nothing else."""
    from dragoman.documents.formats import FORMATS

    sentences = [argument for argument in arguments if _is_sentence(argument)]
    files = [argument for argument in arguments if argument not in sentences]
    for file in files:
        if file != "-" and not _exists(file):
            raise DragomanError(
                f"There is no file {file}: check the path, or pipe text in: `echo {file} | dragoman translate MODEL`."
            )
        known = FORMATS.get(Path(file).suffix[1:].lower())
        if known is not None and known.is_package:
            raise DragomanError(f"{file} is a document, not lines of text: add --out FILE.")
    if sentences:
        raise DragomanError(f"{files[0]} is a file, but {sentences[0]!r} is a sentence: translate them separately.")
    if len(files) > 1:
        raise DragomanError(f"translate takes one file, not {len(files)}: join them with cat and pipe the result in.")


def _translate_documents(translator: "LineTranslator", files: Sequence[str], out: Path) -> None:
    console = open_console(stderr=True, optional=True)
    for file, path in zip(files, pipeline.translate_files(translator, files, out), strict=True):
        console.print(f"{escape(file)} is translated: {escape(str(path))}", highlight=False)


def decoding_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The overridden decoding settings, validated before a model is read."""
    from dragoman.recipe import resolve

    settings = resolve(None, overrides).settings.decoding
    keys = [override.partition("=")[0] for override in overrides]
    if others := [key for key in keys if not key.startswith("decoding.")]:
        raise DragomanError(f"{', '.join(others)} has no effect on a translation: use settings under decoding.")
    return {name: getattr(settings, name) for name in (key.removeprefix("decoding.") for key in keys)}


def _translate_file(translator: "LineTranslator", file: str, n_best: int, scores: bool, as_json: bool) -> None:
    from dragoman.decoding.text_input import available_blocks, lines_of
    from dragoman.terminal import progress_bars

    done = 0
    with progress_bars(open_console(stderr=True, optional=True)) as progress:
        for block in available_blocks(lines_of(file), translator.look_ahead):
            _print_all(block, translator.translate_scored(block, n_best), n_best, scores, as_json)
            done += len(block)
            if not sys.stdout.isatty():
                progress("Translating lines", done, None)


def _print_all(
    sources: Sequence[str], translations: "Sequence[Translation]", n_best: int, scores: bool, as_json: bool
) -> None:
    for source, translation in zip(sources, translations, strict=True):
        if as_json:
            print(json.dumps({"source": source, **asdict(translation)}, ensure_ascii=False), flush=True)
            continue
        for candidate in translation.candidates(n_best):
            print(f"{candidate.score:.4f}\t{candidate.text}" if scores else candidate.text, flush=True)


def _translate_interactively(translator: "LineTranslator", n_best: int, scores: bool) -> None:
    """Prompt for sentences and print their translations."""
    console = open_console()
    languages = translator.languages
    prompt = f"{languages.source}> " if languages else "> "
    answer = f"{languages.target}> " if languages else "  "
    console.print("Type a sentence and press Enter; Ctrl-D quits.", style="dim")
    while True:
        try:
            line = input(prompt)
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        (translation,) = translator.translate_scored([line], n_best)
        for candidate in translation.candidates(n_best):
            score = f"[dim]{candidate.score:.2f}[/dim] " if scores else ""
            console.print(f"[dim]{answer}[/dim]{score}[bold]{escape(candidate.text)}[/bold]", highlight=False)

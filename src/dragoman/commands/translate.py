"""`dragoman translate`: text in, text out; or documents in, documents out."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.commands.typer_app import escape, open_console
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.line_translator import LineTranslator, Translation


def translate(
    model: Annotated[
        Path, typer.Argument(help="Run, checkpoint, export, or folder of OPUS-MT, M2M100 or NLLB.", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]... [key=value]...",
            help="Text, one sentence per line (default: standard input), or documents with --out; settings.",
        ),
    ] = None,
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
    """Translate a file, standard input, or lines typed at a terminal.

    The output has as many lines as the input. Override decoding settings with key=value.

    With --out, documents are translated in their own format, and only their text changes: .docx, .pptx, .odt, .odp,
    .html, .md, .srt, .vtt, .po, .tmx, .xlf, .txt.

    **Examples**

        dragoman translate runs/demo/run

        dragoman translate runs/demo/run news.en > news.de

        dragoman translate runs/demo/run news.en --glossary terms.tsv > news.de

        dragoman translate en-de=models/nllb-200-distilled-600M news.en > news.de

        dragoman translate runs/demo/run report.docx --out report.de.docx

        dragoman translate runs/demo/run slides.pptx notes.md film.srt --out translated

        echo "The teacher reads a book." | dragoman translate runs/demo/run decoding.beam=8 --n-best 3 --scores
    """
    from dragoman.commands.glossary_option import load_with_glossary, show_terms
    from dragoman.decoding.glossary_search import GlossaryTranslator
    from dragoman.decoding.translator import load
    from dragoman.documents.file_translation import check_files

    files = [argument for argument in arguments or [] if "=" not in argument or Path(argument).exists()]
    overrides = [argument for argument in arguments or [] if argument not in files]
    if out is None:
        _check_text_files(files)
    elif n_best > 1 or scores or as_json:
        raise DragomanError("--n-best, --scores and --json have no effect on documents: leave them out.")
    else:
        check_files(files, out)
    settings = _decoding_settings(overrides)
    translator = load(model, **settings) if glossary is None else load_with_glossary(model, glossary, settings)
    if out is not None:
        _translate_documents(translator, files, out)
    elif files in ([], ["-"]) and sys.stdin.isatty():
        _translate_interactively(translator, n_best, scores)
    else:
        _translate_file(translator, files[0] if files else "-", n_best, scores, as_json)
    if isinstance(translator, GlossaryTranslator):
        show_terms(translator)


def _check_text_files(files: Sequence[str]) -> None:
    from dragoman.documents.formats import FORMATS

    for file in files:
        known = FORMATS.get(Path(file).suffix[1:].lower())
        if known is not None and known.is_package:
            raise DragomanError(f"{file} is a document, not lines of text: add --out FILE.")
    if len(files) > 1:
        raise DragomanError(f"translate takes one file, not {len(files)}: join them with cat and pipe the result in.")


def _translate_documents(translator: "LineTranslator", files: Sequence[str], out: Path) -> None:
    from dragoman.documents.file_translation import translate_files
    from dragoman.terminal import progress_bars

    console = open_console(stderr=True)
    with progress_bars(console) as progress:
        translated = translate_files(translator, files, out, progress)
    for file, path in translated:
        console.print(f"{escape(file)} is translated: {escape(str(path))}", highlight=False)


def _decoding_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The overridden decoding settings, validated before a model is read."""
    from dragoman.recipe import resolve

    settings = resolve(None, overrides).settings.decoding
    keys = [override.partition("=")[0] for override in overrides]
    if others := [key for key in keys if not key.startswith("decoding.")]:
        raise DragomanError(f"{', '.join(others)} has no effect on a translation: use settings under decoding.")
    return {name: getattr(settings, name) for name in (key.removeprefix("decoding.") for key in keys)}


def _translate_file(translator: "LineTranslator", file: str, n_best: int, scores: bool, as_json: bool) -> None:
    from dragoman.decoding.text_input import available_blocks, open_text
    from dragoman.terminal import progress_bars
    from dragoman.text_lines import iterate_lines

    done = 0
    with open_text(file) as text, progress_bars(open_console(stderr=True)) as progress:
        for block in available_blocks(iterate_lines(text), translator.look_ahead):
            for source, translation in zip(block, translator.translate_scored(block, n_best), strict=True):
                _print(source, translation, n_best, scores, as_json)
            done += len(block)
            if not sys.stdout.isatty():
                progress("Translating lines", done, None)


def _print(source: str, translation: "Translation", n_best: int, scores: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"source": source, **asdict(translation)}, ensure_ascii=False), flush=True)
        return
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

"""Translating and scoring as commands: files, pipes, and people who type."""

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape

from dragoman.corpus.dataset import DataSet, Split
from dragoman.decoding import comparison_page, scoring
from dragoman.decoding.ctranslate2_translator import CARD_FILE
from dragoman.decoding.line_translator import Candidate, LineTranslator, Translation
from dragoman.decoding.translator import load
from dragoman.errors import DragomanError
from dragoman.export.exporter import FORMS, QUANTIZATIONS
from dragoman.export.exporter import export as write_export
from dragoman.export.model_card import Circumstances
from dragoman.files import write_atomic
from dragoman.number_format import size
from dragoman.progress import Progress
from dragoman.recipe import resolve
from dragoman.terminal import progress_bars, table

SPLITS = ("test", "valid")


def translate(model: Path, file: str, overrides: Sequence[str], *, n_best: int, scores: bool, as_json: bool) -> None:
    """Translate a file, standard input, or lines typed at a terminal."""
    translator = load(model, **_decoding_changes(overrides))
    if file == "-" and sys.stdin.isatty():
        _converse(translator, n_best, scores)
        return
    done = 0
    with _opened(file) as lines, progress_bars(Console(stderr=True)) as progress:
        for block in _as_they_come((line.removesuffix("\n") for line in lines), translator.look_ahead):
            for source, translation in zip(block, translator.translate_scored(block, n_best), strict=True):
                _write(source, translation, n_best, scores, as_json)
            done += len(block)
            if not sys.stdout.isatty():
                progress("Translating lines", done, None)


def _decoding_changes(overrides: Sequence[str]) -> dict[str, Any]:
    """The decoding settings that were given, checked before a model is read."""
    options = resolve(None, overrides).settings.decoding
    keys = [override.partition("=")[0] for override in overrides]
    if others := [key for key in keys if not key.startswith("decoding.")]:
        raise DragomanError(f"{', '.join(others)} does not change a translation: only settings under decoding do.")
    return {name: getattr(options, name) for name in (key.removeprefix("decoding.") for key in keys)}


def _opened(file: str) -> TextIO:
    """Text whose lines end at line feeds alone; bytes that are no UTF-8 are replaced, so that no line is lost."""
    try:
        source = sys.stdin.buffer.fileno() if file == "-" else file
        return open(source, encoding="utf-8", errors="replace", newline="\n", closefd=file != "-")
    except OSError as error:
        raise DragomanError(f"{file} cannot be read ({error.strerror}): check the path.") from None


def _as_they_come(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Blocks of the lines that are there: many from a file, which is fast; one from a slow pipe, which then answers."""
    ready: queue.Queue[str | None] = queue.Queue(2 * most)

    def read() -> None:
        for line in lines:
            ready.put(line)
        ready.put(None)

    threading.Thread(target=read, daemon=True).start()
    open_ended = True
    while open_ended:
        block = [ready.get()]
        while block[-1] is not None and len(block) < most and not ready.empty():
            block.append(ready.get())
        open_ended = block[-1] is not None
        if whole := [line for line in block if line is not None]:
            yield whole


def _candidates(translation: Translation, n_best: int) -> list[Candidate]:
    return [Candidate(translation.text, translation.score), *translation.alternatives][:n_best]


def _write(source: str, translation: Translation, n_best: int, scores: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"source": source, **asdict(translation)}, ensure_ascii=False), flush=True)
        return
    for candidate in _candidates(translation, n_best):
        print(f"{candidate.score:.4f}\t{candidate.text}" if scores else candidate.text, flush=True)


def _converse(translator: LineTranslator, n_best: int, scores: bool) -> None:
    """A prompt for people: type a sentence, see its translation."""
    console = Console()
    languages = translator.languages
    prompt = f"{languages.source}> " if languages else "> "
    answer = f"{languages.target}> " if languages else "  "
    console.print("Type a sentence and press Enter; Ctrl-D leaves.", style="dim")
    while True:
        try:
            line = input(prompt)
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        (translation,) = translator.translate_scored([line], n_best)
        for candidate in _candidates(translation, n_best):
            score = f"[dim]{candidate.score:.2f}[/dim] " if scores else ""
            console.print(f"[dim]{answer}[/dim]{score}[bold]{escape(candidate.text)}[/bold]", highlight=False)


def score(
    systems: Sequence[str],
    source: Path | None,
    reference: Path | None,
    data: Path | None,
    split: str,
    *,
    compare: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Score one system, or compare two."""
    if len(systems) > 2:
        raise DragomanError(f"score takes one system or two, not {len(systems)}.")
    if len(systems) < 2 and (compare or html is not None):
        raise DragomanError(f"{'--compare' if compare else '--html'} needs two systems: name the other one, too.")
    sources, references = _evaluation_text(source, reference, data, split)
    if sources is not None and len(sources) != len(references):
        raise DragomanError(
            f"--src has {len(sources):,} lines, --ref {len(references):,}: give files that belong together."
        )
    with progress_bars(Console(stderr=True)) as progress:
        outputs = [_translations(system, sources, progress) for system in systems]
    for system, output in zip(systems, outputs, strict=True):
        if len(output) != len(references):
            raise DragomanError(
                f"{system} has {len(output):,} lines, the references {len(references):,}: they must belong together."
            )
    if len(systems) == 1:
        _show_score(scoring.score(outputs[0], references), as_json=as_json)
        return
    found = scoring.compare(outputs[0], outputs[1], references)
    if html is not None:
        differing = comparison_page.contrasts(sources, references, *outputs)
        write_atomic(html, comparison_page.as_html(systems, found, differing, len(references)))
        Console(stderr=True).print(f"Side by side: {html}", highlight=False, soft_wrap=True)
    _show_comparison(systems, found, as_json=as_json)


def export(
    model: Path,
    out: Path,
    form: str,
    quantization: str | None,
    data: Path | None,
    dollars_per_hour: float | None,
    *,
    overwrite: bool,
) -> None:
    """Write an export and say what it holds."""
    chosen = next((known for known in FORMS if known == form), None)
    if chosen is None:
        raise DragomanError(f"--to {form} is not known: use {', '.join(FORMS)}.")
    numbers = next((known for known in QUANTIZATIONS if known == quantization), None)
    if quantization is not None and numbers is None:
        raise DragomanError(f"--quantization {quantization} is not known: use {', '.join(QUANTIZATIONS)}.")
    circumstances = Circumstances(None if data is None else DataSet(data), dollars_per_hour)
    write_export(model, out, chosen, numbers, circumstances, overwrite=overwrite)
    console = Console()
    show_files(out, console)
    console.print(
        f"{out} is ready: try `dragoman translate {out}`; its card is {out / CARD_FILE}.",
        highlight=False,
        soft_wrap=True,
    )


def file_sizes(folder: Path) -> dict[str, int]:
    """What an export is made of, in bytes."""
    return {file.name: file.stat().st_size for file in sorted(folder.iterdir())}


def show_files(folder: Path, console: Console) -> None:
    """The same for people."""
    rows = table("file", "size", right=(1,))
    for name, size_bytes in file_sizes(folder).items():
        rows.add_row(name, size(size_bytes))
    console.print(rows)


def _evaluation_text(
    source: Path | None, reference: Path | None, data: Path | None, split: str
) -> tuple[list[str] | None, list[str]]:
    if data is not None:
        if split not in SPLITS:
            raise DragomanError(f"--split {split} is not known: use {' or '.join(SPLITS)}.")
        chosen: Split = "test" if split == "test" else "valid"
        opened = DataSet(data)
        opened.pairs(chosen)  # Says in a sentence where there is none.
        return opened.text(chosen)
    if reference is None:
        raise DragomanError("score needs references: give --ref FILE (and --src FILE for models), or --data DATA.")
    return None if source is None else _read_lines(source), _read_lines(reference)


def _read_lines(path: Path) -> list[str]:
    with _opened(str(path)) as lines:
        return [line.removesuffix("\n") for line in lines]


def _translations(system: str, sources: list[str] | None, progress: Progress) -> list[str]:
    """What a system says: read from a file of translations, or translated by a model."""
    if Path(system).is_file():
        return _read_lines(Path(system))
    translator = load(system)
    if sources is None:
        raise DragomanError(f"{system} is a model and needs text to translate: give --src FILE or --data DATA.")
    output = []
    for translation in translator.translate_stream(sources):
        output.append(translation.text)
        progress(f"Translating with {system}", len(output), len(sources))
    return output


def _show_score(found: scoring.Score, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    rows = table("", "score", "signature", right=(1,))
    for measure in (found.bleu, found.chrf):
        rows.add_row(measure.name, f"{measure.value:.2f}", measure.signature)
    Console().print(rows)


def _show_comparison(systems: Sequence[str], found: scoring.Comparison, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    console = Console()
    rows = table("", *map(str, systems), "difference", "p", right=(1, 2, 3, 4))
    for difference in (found.bleu, found.chrf):
        values = (
            f"{value:.2f} ± {margin:.2f}"
            for value, margin in (
                (difference.baseline, difference.baseline_margin),
                (difference.system, difference.system_margin),
            )
        )
        rows.add_row(difference.name, *values, f"{difference.gain:+.2f}", f"{difference.p_value:.3f}")
    console.print(rows)
    sure = [difference.name for difference in (found.bleu, found.chrf) if difference.significant]
    said = f"The difference in {' and '.join(sure)} is significant" if sure else "No difference is significant"
    console.print(f"{said} (paired bootstrap, p < {scoring.SIGNIFICANT}).", highlight=False)

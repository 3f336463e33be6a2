"""Translation of document files by a model on this machine."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.corpus.sources import Languages
from dragoman.decoding.glossary_search import GlossaryTranslator
from dragoman.decoding.line_translator import LineTranslator
from dragoman.documents.document import UnreadableError
from dragoman.documents.formats import extension_of, parse
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.marked_translation import translate_marked
from dragoman.errors import DragomanError
from dragoman.files import write_atomic
from dragoman.progress_callback import Progress

BLOCK_SEGMENTS = 64
"""Segments between two reports of progress: enough for batches of similar length."""


def check_files(files: Sequence[str], out: Path) -> None:
    """Find what is wrong with the arguments, before a model is loaded."""
    for file in files:
        extension = extension_of(file)
        if not Path(file).is_file():
            raise DragomanError(f"{file} is not a file: check the path.")
        if not _is_folder(files, out) and extension_of(out.name) != extension:
            raise DragomanError(f"--out {out} has another format than {file}: documents keep theirs, .{extension}.")
    if not files:
        raise DragomanError("--out needs a document to translate: name one or more files.")
    if len(files) > 1 and out.is_file():
        raise DragomanError(f"--out {out} is a file: name a folder for several documents.")


def translate_files(
    translator: LineTranslator, files: Sequence[str], out: Path, progress: Progress
) -> list[tuple[str, Path]]:
    """Translate documents into a file or a folder. Returns the names of the files and of their translations."""
    if translator.languages is None:
        raise DragomanError("The model does not state its languages, which documents need: export it again.")
    translated = [(file, _output_path(file, files, out, translator.languages)) for file in files]
    for file, path in translated:
        if any(path.resolve() == Path(other).resolve() for other in files):
            raise DragomanError(f"{path} would be overwritten by its translation: choose another --out.")
        if sum(path == other for _, other in translated) > 1:
            raise DragomanError(f"Several documents would be written to {path}: translate {file} separately.")
    for file, path in translated:
        content = _translate_file(translator, file, translator.languages, progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return translated


def _translate_file(translator: LineTranslator, file: str, languages: Languages, progress: Progress) -> bytes:
    try:
        document = parse(Path(file).read_bytes(), extension_of(file), languages)
    except UnreadableError as error:
        raise DragomanError(f"{file}: {error}") from None
    except OSError as error:
        raise DragomanError(f"{file} cannot be read ({error.strerror}): check the path.") from None
    translations: list[MarkedText] = []
    while len(translations) < len(document.segments):
        block = document.segments[len(translations) : len(translations) + BLOCK_SEGMENTS]
        translations += translate_marked(translator, block)
        if isinstance(translator, GlossaryTranslator):
            for segment, translation in zip(block, translations[-len(block) :], strict=True):
                translator.count_terms(segment.text, translation.text)
        progress(f"Translating {Path(file).name}", len(translations), len(document.segments))
    return document.render(translations)


def _is_folder(files: Sequence[str], out: Path) -> bool:
    return len(files) > 1 or out.is_dir()


def _output_path(file: str, files: Sequence[str], out: Path, languages: Languages) -> Path:
    path = Path(file)
    return out / f"{path.stem}.{languages.target}{path.suffix}" if _is_folder(files, out) else out

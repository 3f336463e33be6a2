"""The corpus that the arguments of `prepare` name."""

import re
from pathlib import Path

from dragoman.corpus.catalog import Corpus, resolve
from dragoman.corpus.sources import Languages, sources_from_arguments
from dragoman.corpus.text_encodings import check_encoding
from dragoman.errors import DragomanError
from dragoman.progress_callback import Progress, no_progress

CORPUS_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(/[A-Za-z-]+)?|.+\.toml(/[A-Za-z-]+)?")


def find_corpus(
    arguments: list[str],
    valid: list[str],
    test: list[str],
    languages: str | None,
    file_format: str | None,
    mirror: Path | None,
    progress: Progress = no_progress,
    *,
    encoding: str | None = None,
) -> Corpus:
    """The corpus that arguments name: one of the catalog, a description, or files."""
    direction = None if languages is None else _parse_direction(languages)
    name = _corpus_name(arguments)
    if name is not None:
        if len(arguments) > 1 or valid or test or file_format or encoding:
            raise DragomanError(
                f"{name} cannot be combined with files: describe the mixture in a TOML file (see docs/prepare.md)."
            )
        return resolve(f"{name}/{languages}" if languages else name, mirror=mirror, progress=progress)
    if mirror is not None:
        raise DragomanError("--from is only for a corpus from the catalog or a description: leave it out for files.")
    encoding = None if encoding is None else check_encoding(encoding)
    train, direction = sources_from_arguments(arguments, direction, file_format, encoding)
    valid_sources = sources_from_arguments(valid, direction, None, encoding)[0] if valid else []
    test_sources = sources_from_arguments(test, direction, None, encoding)[0] if test else []
    name = train[0].name if len(train) == 1 else f"{train[0].name} and {len(train) - 1} more"
    return Corpus(name, direction, tuple(train), tuple(valid_sources), tuple(test_sources))


def _corpus_name(arguments: list[str]) -> str | None:
    """The argument that is a corpus name or a description, if there is one."""
    for argument in arguments:
        if CORPUS_NAME.fullmatch(argument) and not Path(argument).exists():
            return argument
    return next((argument for argument in arguments if argument.endswith(".toml")), None)


def _parse_direction(languages: str) -> Languages:
    codes = languages.split(":" if ":" in languages else "-")
    if len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
        raise DragomanError(f"--languages {languages} is not a direction: write it as en-de, or en-GB:pt-BR.")
    return Languages(*codes)

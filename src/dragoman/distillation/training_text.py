"""The training pairs of a data set, as text again."""

from pathlib import Path

from dragoman.corpus.dataset import DataSet, text_files
from dragoman.decoding.line_translator import to_single_line
from dragoman.errors import DragomanError
from dragoman.files import replacing
from dragoman.progress_callback import Progress

_PROGRESS_PAIRS = 10_000


def write_training_text(data: DataSet, folder: Path, progress: Progress) -> tuple[Path, Path]:
    """Write the training pairs of a data set as two aligned files. Returns their paths.

    The text is the cleaned text in the Unicode normal form of the tokenizer. Training sees no other: encoded again, it
    gives the same tokens. Pairs with a character that the tokenizer does not know are left out.
    """
    pairs, tokenizer = data.pairs("train"), data.tokenizer
    paths = text_files(folder, "train", data.languages)
    written = 0
    folder.mkdir(parents=True, exist_ok=True)
    with (
        replacing(paths[1]) as target_path, replacing(paths[0]) as source_path,
        source_path.open("w", encoding="utf-8", newline="\n") as sources,
        target_path.open("w", encoding="utf-8", newline="\n") as targets,
    ):  # fmt: skip
        for index in range(len(pairs)):
            if index % _PROGRESS_PAIRS == 0:
                progress("Reading the training pairs", index, len(pairs))
            source, target = pairs[index]
            if tokenizer.unk_id in source or tokenizer.unk_id in target:
                continue
            lines = [to_single_line(tokenizer.decode(side.tolist())) for side in (source, target)]
            if all(lines):
                sources.write(f"{lines[0]}\n")
                targets.write(f"{lines[1]}\n")
                written += 1
    progress("Reading the training pairs", len(pairs), len(pairs))
    if not written:
        raise DragomanError(f"{data.path} has no training pair that can be read as text: prepare it from text again.")
    return paths

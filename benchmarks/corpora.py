"""Corpora of the benchmarks: real ones from a folder next to the project, and the demo corpus."""

import lzma
from pathlib import Path

from benchmarks.command_line import run_dragoman
from dragoman.corpus.dataset import DataSet
from dragoman.text_lines import split_lines

CORPORA = Path(__file__).resolve().parents[2] / "shared" / "data"
EUROPARL, MULTI30K, NEWSTEST, TATOEBA = "europarl-en-de", "multi30k-en-de", "newstest-en-de", "tatoeba-en-de"
LANGUAGES = ("en", "de")


def split_files(corpus: str, split: str, corpora: Path = CORPORA) -> tuple[Path, Path]:
    """The English and the German file of a split."""
    english, german = (corpora / corpus / f"{split}.{language}.xz" for language in LANGUAGES)
    missing = [str(path) for path in (english, german) if not path.is_file()]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} not found: put the corpus {corpus} there, compressed with xz.")
    return english, german


def read_split(corpus: str, split: str, corpora: Path = CORPORA) -> tuple[list[str], list[str]]:
    english, german = map(_read_lines, split_files(corpus, split, corpora))
    return english, german


def _read_lines(path: Path) -> list[str]:
    return split_lines(lzma.decompress(path.read_bytes()).decode())


def prepare_demo(out: Path, recipe: str) -> DataSet:
    run_dragoman("prepare", "demo", "--recipe", recipe, "--out", out)
    return DataSet(out)


def prepare_multi30k(out: Path, recipe: str, corpora: Path = CORPORA) -> DataSet:
    """Multi30k from raw text, with its own validation set."""
    train, valid = (split_files(MULTI30K, split, corpora) for split in ("train", "valid"))
    run_dragoman("prepare", *train, "--valid", ",".join(map(str, valid)), "--recipe", recipe, "--out", out)
    return DataSet(out)

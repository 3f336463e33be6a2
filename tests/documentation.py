"""The code blocks of the documentation, and a folder in which they run."""

import gzip
import lzma
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sample_documents import MARKDOWN, SRT, make_docx, make_pptx

import dragoman
from dragoman.corpus import demo
from dragoman.recipe import recipe_names

from .openseq2seq.configurations import TRANSFORMER
from .small import TINY

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COPIES = {
    "data": ("data/demo", "data/wmt16", "data/own", "runs/demo/data"),
    "run": ("runs/demo/run", "runs/base", "runs/bf16", "runs/large-batch", "runs/first", "runs/news"),
    "model": ("models/demo", "models/base", "models/en-de"),
}
"""Places at which the pages expect a data set, a run or an export."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block, without comments and with continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        return [command for line in joined.splitlines() if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[2], found[3])


def make_recipes(folder: Path) -> None:
    """Recipes with the names of the shipped ones, whose training takes seconds."""
    folder.mkdir()
    sections: dict[str, list[str]] = {}
    for setting in ["training.steps=4", *(each for each in TINY if not each.startswith("training.steps"))]:
        section, _, assignment = setting.partition(".")
        name, _, value = assignment.partition("=")
        is_text = not re.fullmatch(r"[\d.]+|true|false", value)
        sections.setdefault(section, []).append(f'{name} = "{value}"' if is_text else f"{name} = {value}")
    text = "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())
    for name in recipe_names():
        (folder / f"{name}.toml").write_text(text)


def make_world(folder: Path) -> None:
    """Files of every name that the pages use: text, documents, a data set, a short run and its exports."""
    pairs = demo.generate(1200, seed=3, valid=1, test=1).train
    _write_text(folder, pairs)
    _write_files(folder, pairs[:50])
    train, valid, test = (
        [str(folder / f"{name}.{side}") for side in ("en", "de")] for name in ("train", "dev", "test")
    )
    prepared = dragoman.prepare(
        train, folder / "data-set", valid=[",".join(valid)], test=[",".join(test)],
        settings={"tokenizer.vocabulary_size": 500}, workers=1, progress=dragoman.no_progress,
    )  # fmt: skip
    trained = dragoman.train("tiny", prepared.path, folder / "first-run", settings=TINY, workers=1)
    exported = dragoman.export(trained.path, folder / "exported")
    dragoman.export(trained.path, folder / "models" / "hf", "huggingface")
    for source, name in ((prepared.path, "data"), (trained.path, "run"), (exported, "model")):
        for copy in COPIES[name]:
            shutil.copytree(source, folder / copy, symlinks=True)
    reversed_model = Path(shutil.copytree(exported, folder / "models" / "de-en"))
    description = reversed_model / "model.json"
    text = description.read_text().replace('"en"', '"?"').replace('"de"', '"en"').replace('"?"', '"de"')
    description.write_text(text)


def _write_text(folder: Path, pairs: list[tuple[str, str]]) -> None:
    parts = {"train": pairs[:1000], "news": pairs[:400], "letters": pairs[:300], "dev": pairs[1000:1040]}
    parts |= {"test": pairs[1100:1110]}
    for name, chosen in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in chosen)
            encoding = "latin-1" if name == "letters" else "utf-8"
            (folder / f"{name}.{language}").write_text(text, encoding=encoding)
            (folder / f"{name}.{language}.xz").write_bytes(lzma.compress(text.encode()))


def _write_files(folder: Path, pairs: list[tuple[str, str]]) -> None:
    lines = "".join(f"{english}\t{german}\n" for english, german in pairs)
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{english}</seg></tuv><tuv xml:lang="de"><seg>{german}</seg></tuv></tu>'
        for english, german in pairs
    )
    (folder / "corrections").mkdir()
    (folder / "corrections" / "en-de.jsonl").write_text('{"en": "Good morning.", "de": "Guten Morgen."}\n')
    (folder / "corpus.en-de.tsv").write_text(lines)
    for name in ("crawl.tsv.gz", "crawl.en-de.tsv.gz"):
        (folder / name).write_bytes(gzip.compress(lines.encode()))
    (folder / "memory.tmx").write_text(f'<tmx version="1.4"><body>{units}</body></tmx>')
    (folder / "terms.tsv").write_text("en\tde\nfire truck\tLöschzug\n")
    (folder / "report.docx").write_bytes(make_docx())
    (folder / "slides.pptx").write_bytes(make_pptx())
    (folder / "notes.md").write_text(MARKDOWN)
    (folder / "film.srt").write_text(SRT)
    (folder / "my-recipe.toml").write_text("[training]\nsteps = 10\n")
    (folder / "transformer-base.py").write_text(TRANSFORMER)

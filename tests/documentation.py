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
NOT_RUN = {
    r"dragoman (distill|report students)": "takes half a minute: tests/distillation runs it",
    r"dragoman demo": "takes minutes: tests/commands/test_demo.py runs it",
    r"dragoman prepare (wmt16|europarl)": "downloads gigabytes",
    r"dragoman prepare own-corpus\.toml": "names files on example.org",
    r"dragoman (launch|doctor|synthesize) .*--hosts": "needs other machines: tests/system runs it",
    r"python -m benchmarks\.": "a benchmark: most take minutes or hours",
    r"python -m tests\.system\.hosts": "needs network namespaces: tests/system/test_hosts.py uses them",
    r"make demo": "installs into .venv: tests/commands/test_demo.py runs the demo",
    r"make test": "would run the tests in the tests",
    r"nft ": "changes the firewall",
    r"pip install": "needs a package index: tests/system/test_installation.py installs the wheel",
    r"dragoman --(install|show)-completion": "is for the shell that runs it: tests/commands asks for completions",
    r"dragoman (translate|serve|export) \S+=models/": "needs weights of gigabytes: tests/exporting uses small ones",
    r"git clone URL": "needs the address of a repository",
    r"import argostranslate": "downloads a model that splits sentences",
    r"with Hosts\(": "needs network namespaces: tests/system/test_hosts.py uses them",
}
"""Commands and programs that are only checked: they are parsed, and their options and names exist."""
STEPS = 200
SETTINGS = [
    *TINY, f"training.steps={STEPS}", "evaluation.every=100", "checkpoint.every=50",
    "batch.tokens=500", "model.d_model=64", "model.dropout=0", "schedule.learning_rate=0.005",
]  # fmt: skip
"""Of a model that learns sentences in seconds, so that filters keep its translations."""
COPIES = {
    "data": ("data/demo", "data/wmt16", "data/own", "data/old", "runs/demo/data"),
    "run": (
        "runs/demo/run", "runs/base", "runs/bf16", "runs/large-batch", "runs/first", "runs/news", "runs/en-de",
        "runs/de-en",
    ),
    "model": ("models/demo", "models/base", "models/en-de", "models/de-en"),
    "hugging-face": ("models/hf", "models/opus-mt-en-de"),
    "synthetic": ("data/synthetic",),
}  # fmt: skip
"""Places at which the pages expect a data set, a run, an export or a synthetic corpus."""


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
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [command for line in lines if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[2], found[3])


def find_reason(code: str) -> str | None:
    """The reason why a command or a program is only checked; None if a test runs it."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, code)), None)


def make_recipes(folder: Path) -> None:
    """Recipes with the names of the shipped ones, whose training takes seconds."""
    folder.mkdir()
    sections: dict[str, list[str]] = {}
    for key, value in dict(setting.split("=") for setting in SETTINGS).items():
        section, _, name = key.partition(".")
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
    trained = dragoman.train("tiny", prepared.path, folder / "first-run", settings=SETTINGS, workers=1)
    exported = dragoman.export(trained.path, folder / "exported")
    hugging_face = dragoman.export(trained.path, folder / "transformers", "huggingface")
    translated = dragoman.synthesize(trained.path, folder / "news.en", folder / "translated")
    made = {"data": prepared.path, "run": trained.path, "model": exported, "hugging-face": hugging_face}
    made |= {"synthetic": translated.path}
    for name, source in made.items():
        for copy in COPIES[name]:
            shutil.copytree(source, folder / copy, symlinks=True)
    for reversed_model in (folder / "models" / "de-en", folder / "runs" / "de-en"):
        for description in reversed_model.rglob("model.json"):
            text = description.read_text().replace('"en"', '"?"').replace('"de"', '"en"').replace('"?"', '"de"')
            description.write_text(text)


def _write_text(folder: Path, pairs: list[tuple[str, str]]) -> None:
    parts = {**dict.fromkeys(("train", "real"), pairs[:1000]), "news": pairs[:400]}
    parts |= dict.fromkeys(("crawl", "letters", "new"), pairs[:300])
    parts |= {"dev": pairs[1000:1040], "newstest": pairs[1040:1050], "test": pairs[1100:1110]}
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
    for name in ("memory.tmx", "own.tmx"):
        (folder / name).write_text(f'<tmx version="1.4"><body>{units}</body></tmx>')
    (folder / "terms.tsv").write_text("en\tde\nfire truck\tLöschzug\n")
    (folder / "report.docx").write_bytes(make_docx())
    (folder / "slides.pptx").write_bytes(make_pptx())
    (folder / "notes.md").write_text(MARKDOWN)
    (folder / "film.srt").write_text(SRT)
    (folder / "my-recipe.toml").write_text("[training]\nsteps = 10\n")
    (folder / "transformer-base.py").write_text(TRANSFORMER)

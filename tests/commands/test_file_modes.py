"""Modes of all files that commands write, by the umask: another user's server must be able to read a model."""

import os
from collections.abc import Iterator

import pytest

from dragoman.corpus import demo

from ..command_line import run_command
from ..small import TINY

SECRET = ("keys.txt",)
"""Files that only their owner may read, whatever the umask."""


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_everything_that_commands_write_follows_the_umask(umask, tmp_path, monkeypatch):
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
    pairs = demo.generate(300, seed=2, valid=20, test=1)
    for name, split in (("train", pairs.train), ("valid", pairs.valid)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in split))
        for code, side in (("en", 0), ("de", 1)):
            (tmp_path / f"{name}.{code}").write_text("".join(f"{pair[side]}\n" for pair in split))
    for words in (
        ("prepare", "train.tsv", "--valid", "valid.tsv", "--languages", "en-de", "--out", "data", "--workers", "1",
         "tokenizer.vocabulary_size=400"),
        ("train", "tiny", "--data", "data", "--out", "run", *TINY, "training.steps=4", "evaluation.every=2",
         "checkpoint.average=2", "optimizer.ema_decay=0.9"),
        ("report", "run"),
        *(("export", "run", "--to", form, "--out", f"exports/{form}") for form in ("ctranslate2", "safetensors")),
        ("export", "run", "--to", "huggingface", "--out", "exports/huggingface"),
        ("score", "valid.en", "valid.de", "--ref", "valid.de", "--html", "differences.html"),
        ("serve", "--keys", "keys.txt", "--new-key", "alice"),
    ):  # fmt: skip
        done = run_command(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    written = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if not path.is_symlink()}
    for expected in (
        "data/manifest.json", "run/config.json", "run/events-0.jsonl", "run/report.html", "differences.html",
        "run/checkpoints/step-00000004/weights.safetensors", "run/checkpoints/step-00000004/trained.safetensors",
        "run/checkpoints/step-00000004/optimizer.safetensors", "run/checkpoints/averaged/weights.safetensors",
        "exports/ctranslate2/model.bin", "exports/huggingface/model.safetensors", "exports/safetensors/README.md",
        "keys.txt",
    ):  # fmt: skip
        assert expected in written
    modes = {name: path.stat().st_mode & 0o777 for name, path in written.items()}
    allowed = {name: (0o777 if path.is_dir() else 0o666) & ~umask for name, path in written.items()}
    allowed |= dict.fromkeys(SECRET, 0o600)
    assert {name: oct(mode) for name, mode in modes.items() if mode != allowed[name]} == {}

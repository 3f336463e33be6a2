"""Remedies that fit the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.errors import write_remedy

from .insight.synthetic_runs import synthetic_run, write_run
from .models import save_random_model, small_architecture

WITHOUT_ROOTS_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override")
"""A command under which root obeys the modes of files, as everyone else does."""


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("No space left on device", "free some disk space"),
        ("Error while serializing: I/O error: No space left on device (os error 28)", "free some disk space"),
        ("Disk quota exceeded", "free some disk space"),
        ("Permission denied", "allow your user to write there"),
        ("Read-only file system", "mount that disk writable"),
        ("Not a directory", "move the file that is in the place of a folder"),
        ("Input/output error", "check its disk"),
        (None, "check its disk"),
    ],
)
def test_each_reason_for_a_refused_write_has_its_own_remedy(reason, remedy):
    assert write_remedy(reason) == remedy


@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        "prepare demo --out {}/data",
        "train demo --data {data} --out {}/run training.steps=1",
        "report {run} --out {}/report.html",
        "score {text} {text} --ref {text} --html {}/page.html",
        "export {model} --out {}/model",
        "serve --keys {}/keys --new-key me",
    ],
)
def test_a_folder_that_is_read_only_is_named_with_its_own_remedy(command, data: DataSet, tmp_path: Path):
    folder, text = tmp_path / "read-only", tmp_path / "text"
    folder.mkdir(mode=0o555)
    text.write_text("A line.\n")
    run = write_run(tmp_path / "run", synthetic_run(20))
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), data.tokenizer)
    words = command.format(folder, data=data.path, text=text, run=run, model=model).split()
    prefix = WITHOUT_ROOTS_RIGHTS if os.geteuid() == 0 else ()
    done = subprocess.run([*prefix, sys.executable, "-m", "dragoman", *words], capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Permission denied): allow your user to write there" in done.stderr
    assert "free some" not in done.stderr
    assert f"{folder}/" in done.stderr
    assert f"{folder}/." not in done.stderr, "the name of a draft means nothing to a user"

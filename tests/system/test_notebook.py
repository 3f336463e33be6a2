"""The Python API in a real notebook kernel: progress bars, output of workers, and the report as Markdown."""

import json
import os
import subprocess

import pytest

from ..peer_environment import peer_python
from ..small import TINY

pytestmark = pytest.mark.system
CELLS = [
    "import dragoman\nprepared = dragoman.prepare(['all.tsv'], 'data', languages='en-de', workers=1)",
    f"run = dragoman.train('tiny', 'data', 'run', settings={TINY!r}, workers=2)\nrun",
    "dragoman.report('run')",
]
RUN_NOTEBOOK = """
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=250, kernel_name="python3").execute()
print(json.dumps(notebook))
"""


def test_a_notebook_shows_bars_workers_and_the_report(tmp_path):
    pairs = "".join(f"This is sentence number {n}.\tDies ist Satz Nummer {n}.\n" for n in range(600))
    (tmp_path / "all.tsv").write_text(pairs)
    done = subprocess.run(
        [peer_python(), "-c", RUN_NOTEBOOK], input=json.dumps(CELLS), capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PLATFORM_DIRS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    notebook = json.loads(done.stdout)
    prepared, trained, report = (json.dumps(cell["outputs"], ensure_ascii=False) for cell in notebook["cells"])
    bars = json.dumps(notebook["metadata"]["widgets"], ensure_ascii=False)
    assert "widget-view" in prepared
    assert "Cleaning pairs" in bars
    assert "━━━" in bars
    assert "widget-view" in trained
    assert "2 workers" in trained
    assert "Finished after 12 steps" in trained
    assert "reason='finished'" in trained
    assert "text/markdown" in report
    assert "Eleven answers" in report

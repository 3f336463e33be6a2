"""`dragoman score` as users run it."""

import subprocess
import sys
from pathlib import Path

SOURCES = ["a house", "a tree", "a dog & a cat", "a bird"]
REFERENCES = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Vogel"]
WORSE = ["ein Haus", "der Traum", "ein Hund", "ein <b>Vogel"]
BETTER = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Fogel"]


def test_score_compares_two_systems_and_writes_the_page(tmp_path: Path) -> None:
    for name, lines in (("old", WORSE), ("new", BETTER), ("ref", REFERENCES), ("src", SOURCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "dragoman", "score", "--compare", "old", "new", "--ref", "ref", "--src", "src"]
    done = subprocess.run([*command, "--html", "page.html"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "paired bootstrap" in done.stdout
    assert "a dog &amp; a cat" in (tmp_path / "page.html").read_text()
    done = subprocess.run([*command[:5], "old", "--ref", "ref"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--compare needs two systems" in done.stderr

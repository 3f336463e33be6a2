"""`dragoman score` as users run it."""

import lzma
from pathlib import Path

from ..command_line import run_command

SOURCES = ["a house", "a tree", "a dog & a cat", "a bird"]
REFERENCES = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Vogel"]
WORSE = ["ein Haus", "der Traum", "ein Hund", "ein <b>Vogel"]
BETTER = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Fogel"]


def test_score_compares_two_systems_and_writes_the_page(tmp_path: Path) -> None:
    for name, lines in (("old", WORSE), ("new", BETTER), ("ref", REFERENCES), ("src", SOURCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = ("--ref", "ref", "--src", "src", "--html", "page.html")
    done = run_command("score", "--compare", "old", "new", *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "paired bootstrap" in done.stdout
    assert "a dog &amp; a cat" in (tmp_path / "page.html").read_text()
    done = run_command("score", "--compare", "old", "--ref", "ref", cwd=tmp_path)
    assert done.returncode == 2
    assert "--compare needs two systems" in done.stderr


def test_all_files_may_be_compressed(tmp_path: Path) -> None:
    for name, lines in (("out", BETTER), ("ref", REFERENCES), ("src", SOURCES)):
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.xz").write_bytes(lzma.compress(text.encode()))
    plain, compressed = (
        run_command("score", f"out{end}", "--ref", f"ref{end}", "--src", f"src{end}", "--json", cwd=tmp_path)
        for end in ("", ".xz")
    )
    assert compressed.returncode == 0, compressed.stderr
    assert compressed.stdout == plain.stdout

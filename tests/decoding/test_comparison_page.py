"""Where two systems differ most, and the command that shows it."""

from pathlib import Path

from dragoman.decoding import scoring
from dragoman.decoding.comparison_page import SHOWN, as_html, contrasts

from ..command_line import run_command

SOURCES = ["a house", "a tree", "a dog & a cat", "a bird"]
REFERENCES = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Vogel"]
WORSE = ["ein Haus", "der Traum", "ein Hund", "ein <b>Vogel"]
BETTER = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Fogel"]


def page_of(baseline: list[str], system: list[str]) -> str:
    found = contrasts(SOURCES, REFERENCES, baseline, system)
    return as_html(["old", "new"], scoring.compare(baseline, system, REFERENCES), found, len(SOURCES))


def test_only_what_differs_is_shown_and_the_largest_difference_first() -> None:
    found = contrasts(SOURCES, REFERENCES, WORSE, BETTER)
    assert {item.line for item in found} == {2, 3, 4}
    assert [abs(item.gain) for item in found] == sorted((abs(item.gain) for item in found), reverse=True)
    assert found[0].gain > 0
    backwards = contrasts(None, REFERENCES, BETTER, WORSE)
    assert [item.gain for item in backwards] == [-item.gain for item in found]
    assert backwards[0].source is None


def test_the_page_marks_words_and_takes_no_text_for_markup() -> None:
    page = page_of(WORSE, BETTER)
    assert "<mark>der Traum</mark>" in page
    assert "<mark>&amp; eine Katze</mark>" in page
    assert "ein <mark>&lt;b&gt;Vogel</mark>" in page
    assert "<b>" not in page
    assert "Of 4 sentences, 3 differ" in page
    assert "<script" not in page


def test_no_more_is_shown_than_anyone_reads() -> None:
    many = SHOWN + 50
    found = contrasts(None, ["x y"] * many, ["x"] * many, ["y"] * many)
    comparison = scoring.compare(["x"] * many, ["y"] * many, ["x y"] * many, resamples=10)
    assert as_html(["old", "new"], comparison, found, many).count("<article>") == SHOWN


def test_the_command_compares_and_writes_the_page(tmp_path: Path) -> None:
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

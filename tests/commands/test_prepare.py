"""`dragoman prepare` as users run it: formats, encodings, and a summary that says what was dropped and why."""

from pathlib import Path

import pytest

from dragoman.corpus import demo

from ..command_line import run_command

PAIRS = [
    (f"{english} {number}", f"Übung: {german} {number}" if number % 3 == 0 else f"{german} {number}")
    for number, (english, german) in enumerate(demo.generate(300, seed=3, valid=1, test=1).train)
]
SETTINGS = ("tokenizer.vocabulary_size=400", "corpus.valid_pairs=10", "--workers", "1")


def prepare(folder: Path, *arguments: str) -> str:
    done = run_command("prepare", *arguments, "--out", str(folder / "data"), *SETTINGS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_sides(folder: Path, encoding: str) -> list[str]:
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_bytes("".join(f"{pair[side]}\n" for pair in PAIRS).encode(encoding))
    return [str(folder / "a.en"), str(folder / "a.de")]


def test_pairs_lost_to_another_encoding_are_reported_with_the_option_that_keeps_them(tmp_path: Path) -> None:
    files = write_sides(tmp_path, "latin-1")
    shown = prepare(tmp_path, *files)
    assert "invalid_utf8" in shown
    assert "looks like latin-1: give --encoding latin-1" in shown
    shown = prepare(tmp_path, *files, "--encoding", "latin-1", "--overwrite")
    assert "invalid_utf8" not in shown
    assert "Cleaning dropped 0 of 300 pairs (0.0%)" in shown
    assert "Warning" not in shown


def test_a_file_that_is_all_in_another_encoding_is_reported(tmp_path: Path) -> None:
    files = write_sides(tmp_path, "latin-1")
    (tmp_path / "a.de").write_bytes(b"\xdcbung\n" * len(PAIRS))
    done = run_command("prepare", *files, "--out", str(tmp_path / "data"), *SETTINGS)
    assert done.returncode == 2
    assert "give --encoding latin-1" in done.stderr


def test_csv_says_how_it_was_read(tmp_path: Path) -> None:
    rows = "".join(f'"{english}";"{german}"\r\n' for english, german in PAIRS)
    (tmp_path / "terms.csv").write_bytes(f"en;de\r\n{rows}".encode("cp1252"))
    shown = prepare(tmp_path, str(tmp_path / "terms.csv"), "--encoding", "cp1252")
    assert "CSV with semicolons between the fields and a header row: 'en' is the source, 'de' the target" in shown
    assert "of 300 pairs" in shown


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("memory.tmx", '<tmx version="1.4"><header srclang="en-US"/><body>{}</body></tmx>'),
        ("messages.po", 'msgid ""\nmsgstr "Language: de\\n"\n\n{}'),
        ("messages.xlf", '<xliff srcLang="en" trgLang="de" version="2.0"><file id="1"><unit>{}</unit></file></xliff>'),
    ],
)
def test_files_that_state_their_languages_need_no_option(name: str, content: str, tmp_path: Path) -> None:
    units = {
        "memory.tmx": '<tu><tuv xml:lang="de"><seg>{1}</seg></tuv><tuv xml:lang="en-US"><seg>{0}</seg></tuv></tu>',
        "messages.po": 'msgid "{0}"\nmsgstr "{1}"\n\n',
        "messages.xlf": "<segment><source>{0}</source><target>{1}</target></segment>",
    }
    text = content.format("".join(units[name].format(*pair) for pair in PAIRS))
    (tmp_path / name).write_text(text, encoding="utf-8")
    prepare(tmp_path, str(tmp_path / name))
    shown = run_command("inspect", str(tmp_path / "data"))
    assert "en-US to de" in shown.stdout or "en to de" in shown.stdout


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    files = write_sides(tmp_path, "utf-8")
    done = run_command("prepare", *files, "--encoding", "klingon", "--out", str(tmp_path / "data"))
    assert done.returncode == 2
    assert "use for example latin-1" in done.stderr


def test_samples_of_dropped_pairs_are_shown_on_request(tmp_path: Path) -> None:
    lines = [f"{english}\t{german}" for english, german in PAIRS]
    file = tmp_path / "menu.en-de.tsv"
    file.write_text("\n".join([*lines, "Read our terms today.\tRead our Terms today!", ""]))
    assert "copied  Read our terms today. | Read our Terms today!" in prepare(tmp_path, str(file), "--samples")
    assert "Read our terms" not in prepare(tmp_path, str(file))
    assert "copied  Read our terms today." in run_command("inspect", str(tmp_path / "data"), "--samples").stdout

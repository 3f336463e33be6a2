"""`dragoman translate` with documents: files in, files out."""

import io
from pathlib import Path

import docx
import pytest
from benchmarks.sample_documents import MARKDOWN, SRT, make_docx

from ..command_line import run_command
from ..models import LINES
from ..serving.conftest import exports  # noqa: F401 (a fixture)


@pytest.fixture
def model(exports: list[Path]) -> str:  # noqa: F811
    return str(exports[0])


def test_a_word_document_is_translated_into_another_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "report.docx").write_bytes(make_docx())
    result = run_command("translate", model, "report.docx", "--out", "report.de.docx", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "report.docx is translated: report.de.docx" in result.stderr
    before, after = (
        docx.Document(io.BytesIO((tmp_path / name).read_bytes())) for name in ("report.docx", "report.de.docx")
    )
    assert [p.style.name for p in before.paragraphs] == [p.style.name for p in after.paragraphs]
    assert [p.text for p in before.paragraphs] != [p.text for p in after.paragraphs]
    assert len(after.inline_shapes) == 1


def test_several_documents_go_into_a_folder_with_the_language_in_their_names(model: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(MARKDOWN)
    (tmp_path / "film.srt").write_text(SRT)
    (tmp_path / "lines.txt").write_text("\n".join(LINES[:3]))
    result = run_command("translate", model, "notes.md", "film.srt", "lines.txt", "--out", "new/folder", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    made = tmp_path / "new" / "folder"
    assert sorted(path.name for path in made.iterdir()) == ["film.de.srt", "lines.de.txt", "notes.de.md"]
    assert (made / "lines.de.txt").read_text().splitlines() == run_command(
        "translate", model, str(tmp_path / "lines.txt")
    ).stdout.splitlines()
    assert 'print("Code is not translated")' in (made / "notes.de.md").read_text()


def test_a_catalog_keeps_its_placeholders_and_counts_each_term_once(model: str, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "%d teacher reads {title}"\nmsgstr ""\n')
    (tmp_path / "terms.tsv").write_text("teacher\tXylophon\n")
    result = run_command("translate", model, "a.po", "--out", "b.po", "--glossary", "terms.tsv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Glossary: 1 of 1 terms" in result.stderr
    entry = (tmp_path / "b.po").read_text().rpartition("msgstr ")[2]
    assert all(part in entry for part in ("%d", "{title}", "Xylophon"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a.docx", "--out", "a.docx"], "a.docx would be overwritten by its translation"),
        (["a.docx", "--out", "./a.docx"], "would be overwritten"),
        (["a.docx", "--out", "b.odt"], "documents keep theirs, .docx"),
        (["a.exe", "--out", "b.exe"], "does not end in .txt, .html"),
        (["missing.docx", "--out", "b.docx"], "missing.docx is not a file"),
        (["bad.docx", "--out", "b.docx"], "bad.docx: The file is damaged, or not in the format"),
        (["a.docx", "c.md", "--out", "c.md"], "is a file: name a folder"),
        (["a.docx", "sub/a.docx", "--out", "new"], "Several documents would be written to new/a.de.docx"),
        (["--out", "b.docx"], "needs a document"),
        (["a.docx"], "a.docx is a document, not lines of text: add --out FILE"),
        (["a.docx", "--out", "b.docx", "--n-best", "2"], "no effect on documents"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    model: str, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.docx", "sub/a.docx"):
        (tmp_path / name).write_bytes(make_docx())
    (tmp_path / "a.exe").write_bytes(b"MZ")
    (tmp_path / "bad.docx").write_bytes(b"PK")
    (tmp_path / "c.md").write_text("text")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = run_command("translate", model, *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert reason in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_text_without_out_is_translated_line_by_line_as_before(model: str, tmp_path: Path) -> None:
    (tmp_path / "news.md").write_text("\n".join(LINES[:2]))
    result = run_command("translate", model, "news.md", cwd=tmp_path)
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 2

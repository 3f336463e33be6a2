"""`dragoman translate --glossary` as users run it, and the argument of `dragoman serve --glossary`."""

from pathlib import Path

import pytest

from dragoman.commands.glossary_option import parse_glossary
from dragoman.corpus.sources import Languages
from dragoman.decoding.glossary import GlossaryFile
from dragoman.errors import DragomanError

from ..command_line import run_command
from ..models import LINES, briefly_trained_model, save_model, train_tokenizer


def test_translate_applies_terms_and_reports_them(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(tmp_path)
    model = save_model(tmp_path / "model", briefly_trained_model(tokenizer), tokenizer, "en-de", beam=2)
    word = next(word for word in LINES[0].split() if word.isalpha() and word.islower())
    (tmp_path / "terms.tsv").write_text(f"{word}\tXylophon\n", encoding="utf-8")
    options = ("--glossary", str(tmp_path / "terms.tsv"))
    done = run_command("translate", str(model), *options, stdin=f"{LINES[0]}\nZebra.\n")
    assert done.returncode == 0, done.stderr
    assert "Xylophon" in done.stdout
    assert done.stdout.count("\n") == 2
    assert "1 of 1 terms in the text were applied" in done.stderr
    (tmp_path / "terms.tsv").write_text("only a term\n", encoding="utf-8")
    done = run_command("translate", str(model), *options, stdin="x\n")
    assert done.returncode == 2
    assert "terms.tsv, line 1" in done.stderr


def test_a_server_with_several_models_needs_the_direction_of_a_glossary() -> None:
    assert parse_glossary("terms.tsv", 1) == GlossaryFile(Path("terms.tsv"))
    assert parse_glossary("en-de=terms.tsv", 2) == GlossaryFile(Path("terms.tsv"), Languages("en", "de"))
    for text in ("terms.tsv", "german=terms.tsv"):
        with pytest.raises(DragomanError, match="write"):
            parse_glossary(text, 2)

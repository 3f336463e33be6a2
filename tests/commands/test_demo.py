import io
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

import dragoman
from dragoman.commands import demo
from dragoman.corpus.demo import generate

from ..command_line import run_command as run
from ..small import TINY

CATALOG = Path(dragoman.__file__).parent / "corpus" / "catalog"


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory) -> tuple[str, str]:
    """Folder and output of a demo that is too short to learn anything."""
    out = tmp_path_factory.mktemp("demo")
    console = Console(file=io.StringIO(), width=100)
    demo.run(out, 1, console, [*TINY, "checkpoint.average=2", "batch.tokens=400"])
    return str(out), console.file.getvalue()


@pytest.mark.system
def test_the_demo_runs_the_full_pipeline(finished_demo):
    out, text = finished_demo
    assert (Path(out) / "run" / "report.html").exists()
    for part in ("1. Prepare", "2. Train", "3. Score", "4. Translate", "5. Understand", "BLEU", "Next"):
        assert part in text
    assert all(source in text for source, _ in demo.EXAMPLES)


@pytest.mark.system
def test_a_run_can_be_translated_with_scored_and_inspected(finished_demo):
    out, _ = finished_demo
    lines = "The dog sleeps.\n\n  \nOn\u2028two lines?\n" + "word " * 600 + "\n"
    translated = run("translate", f"{out}/run", stdin=lines)
    assert translated.returncode == 0, translated.stderr
    assert translated.stdout.count("\n") == lines.count("\n")
    assert translated.stdout.split("\n")[1:3] == ["", ""]

    scored = run("score", f"{out}/run", f"{out}/run", "--data", f"{out}/data", "--split", "valid")
    assert "No difference is significant" in scored.stdout

    inspected = run("inspect", f"{out}/run")
    assert "step-00000012" in inspected.stdout
    assert "weights.safetensors" in run("inspect", f"{out}/run/checkpoints/averaged").stdout

    for command in ("inspect", "report", "translate", "export --out x", "watch"):
        word, *options = command.split()
        led = run(word, out, *options)
        assert led.returncode == 2
        assert f"did you mean {out}/run?" in led.stderr

    python = dragoman.load(f"{out}/run", beam=2)
    assert python.translate(["The dog sleeps.", ""])[1] == ""


@pytest.mark.system
def test_errors_of_translate_and_score_are_one_sentence(finished_demo, tmp_path):
    out, _ = finished_demo
    cases = [
        (("translate", str(tmp_path)), "There is no model in"),
        (("translate", f"{out}/run", "missing.txt"), "There is no file missing.txt: check the path, or pipe text in"),
        (("translate", f"{out}/run", "decoding.beam=0"), "decoding.beam = 0 is not allowed"),
        (("translate", f"{out}/run", "model.heads=4"), "use settings under decoding"),
        (("score", f"{out}/run"), "score needs references"),
        (("score", f"{out}/run", "--data", f"{out}/data", "--split", "tset"), "--split tset is not known"),
    ]
    for arguments, message in cases:
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_the_examples_are_in_the_grammar_of_the_demo_corpus_but_not_in_its_training_data():
    description = tomllib.loads((CATALOG / "demo.toml").read_text())
    training = description["train"][0]
    pairs = set(generate(training["sentences"], seed=training["seed"]).train)
    words = {word for pair in pairs for sentence in pair for word in sentence.split()}
    for source, reference in demo.EXAMPLES:
        assert (source, reference) not in pairs
        assert {*source.split(), *reference.split()} <= words

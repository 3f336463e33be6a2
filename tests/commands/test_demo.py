import io
from pathlib import Path

import pytest
from rich.console import Console

import dragoman
from dragoman.commands import demo

from ..command_line import run_command as run
from ..small import TINY


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> tuple[str, str]:
    """A demo so short that it learns nothing: the road is what is tested."""
    out = tmp_path_factory.mktemp("demo")
    console = Console(file=io.StringIO(), width=100)
    demo.run(out, 1, console, [*TINY, "checkpoint.average=2", "batch.tokens=400"])
    return str(out), console.file.getvalue()


@pytest.mark.system
def test_the_demo_walks_the_whole_road(walked):
    out, text = walked
    assert (Path(out) / "run" / "report.html").exists()
    for part in ("1. Prepare", "2. Train", "3. Score", "4. Translate", "5. Understand", "BLEU", "What next"):
        assert part in text
    assert all(sentence in text for sentence in demo.SENTENCES)


@pytest.mark.system
def test_a_run_translates_scores_and_can_be_looked_into(walked):
    out, _ = walked
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

    python = dragoman.load(f"{out}/run", beam=2)
    assert python.translate(["The dog sleeps.", ""])[1] == ""


@pytest.mark.system
def test_mistakes_of_a_translator_are_told_in_a_sentence(walked, tmp_path):
    out, _ = walked
    cases = [
        (("translate", str(tmp_path)), "There is no model in"),
        (("translate", f"{out}/run", "missing.txt"), "missing.txt cannot be read"),
        (("translate", f"{out}/run", "decoding.beam=0"), "decoding.beam = 0 is not allowed"),
        (("translate", f"{out}/run", "model.heads=4"), "only settings under decoding"),
        (("score", f"{out}/run"), "score needs references"),
        (("score", f"{out}/run", "--data", f"{out}/data", "--split", "tset"), "--split tset is not known"),
    ]
    for arguments, message in cases:
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr

"""BLEU and chrF, compared with sacreBLEU's command line."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from dragoman.decoding.scoring import compare, measure_bleu, measure_gain, score
from dragoman.errors import DragomanError

REFERENCES = ["The cat is on the mat.", "Hello world, my friend!", "The dog ran away very quickly today."] * 8
GOOD = ["The cat sat on the mat.", "Hello world, my friend", "A dog ran away quickly today."] * 8
BAD = ["Cat mat the on.", "Hello friend", "A dog was there."] * 8
OTHER_REFERENCES = ["A cat sat on the mat.", "Hi world, my friend!", "A dog ran off quickly."] * 8


def sacrebleu(folder: Path, *arguments: str, **files: list[str]) -> str:
    """The output of sacreBLEU's command line."""
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *arguments, "-m", "bleu", "chrf"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_scores_and_signatures_equal_those_of_sacrebleu(tmp_path: Path) -> None:
    arguments = ("ref", "ref2", "-i", "out", "-w", "10", "-f", "json")
    theirs = json.loads(sacrebleu(tmp_path, *arguments, out=GOOD, ref=REFERENCES, ref2=OTHER_REFERENCES))
    ours = score(GOOD, REFERENCES, OTHER_REFERENCES)
    for measure, expected in zip((ours.bleu, ours.chrf), theirs, strict=True):
        assert measure.name == expected["name"]
        assert measure.value == pytest.approx(expected["score"], abs=1e-8)
        assert measure.signature == expected["signature"]
    assert ours.sentences == len(GOOD)
    assert str(ours.bleu).startswith(f"BLEU {ours.bleu.value:.2f} (nrefs:2|case:mixed|eff:no|tok:13a|")


def test_the_comparison_equals_that_of_sacrebleu(tmp_path: Path) -> None:
    arguments = ("ref", "-i", "bad", "good", "--paired-bs", "--paired-bs-n", "200", "-w", "4", "-f", "text")
    printed = sacrebleu(tmp_path, *arguments, bad=BAD, good=GOOD, ref=REFERENCES)
    ours = compare(BAD, GOOD, REFERENCES, resamples=200)
    for difference in (ours.bleu, ours.chrf):
        assert f" {difference.baseline:.4f} (" in printed
        assert f" {difference.system:.4f} (" in printed
        assert f" ± {difference.baseline_margin:.4f})" in printed
        assert f" ± {difference.system_margin:.4f})" in printed
        assert f"(p = {difference.p_value:.4f})*" in printed
        assert difference.signature in printed
        assert difference.significant
        assert difference.gain > 0


def test_a_system_does_not_differ_significantly_from_itself() -> None:
    same = compare(GOOD, GOOD, REFERENCES, resamples=100)
    assert not same.bleu.significant
    assert same.bleu.gain == 0


def test_the_gain_is_the_difference_of_the_scores_with_an_interval_around_it() -> None:
    found, expected = measure_gain(BAD, GOOD, REFERENCES), compare(BAD, GOOD, REFERENCES).bleu
    assert found.bleu == pytest.approx(expected.gain, abs=1e-6)
    assert 0 < found.low < found.bleu < found.high
    lost = measure_gain(GOOD, BAD, REFERENCES)
    assert (lost.bleu, lost.low, lost.high) == pytest.approx((-found.bleu, -found.high, -found.low))
    same = measure_gain(GOOD, GOOD, REFERENCES)
    assert (same.bleu, same.low, same.high) == (0.0, 0.0, 0.0)
    assert not same.is_significant


def test_the_interval_of_a_score_lies_around_it() -> None:
    bleu, low, high = measure_bleu(BAD, REFERENCES)
    assert bleu == pytest.approx(score(BAD, REFERENCES).bleu.value, abs=1e-6)
    assert low < bleu < high
    assert measure_bleu(REFERENCES, REFERENCES) == pytest.approx((100.0, 100.0, 100.0))


def test_the_interval_of_a_gain_covers_the_difference_in_most_samples_of_the_same_text() -> None:
    random = Random(3)
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
    texts = [[" ".join(random.choices(words, k=10)) for _ in range(60)] for _ in range(30)]

    def damaged(line: str, part: float) -> str:
        return " ".join("x" if random.random() < part else word for word in line.split())

    found = [
        measure_gain([damaged(line, 0.4) for line in lines], [damaged(line, 0.3) for line in lines], lines)
        for lines in texts
    ]
    expected = sum(gain.bleu for gain in found) / len(found)
    assert sum(gain.low <= expected <= gain.high for gain in found) >= 25


@pytest.mark.parametrize(("language", "tokenizer"), [("de", "13a"), (None, "13a"), ("zh", "zh"), ("zh-TW", "zh")])
def test_the_signature_names_the_tokenizer_of_the_language(language: str | None, tokenizer: str) -> None:
    assert f"tok:{tokenizer}" in score(GOOD, REFERENCES, language=language).bleu.signature


def test_japanese_can_be_scored_without_optional_packages() -> None:
    signature = score(["猫がいる。"], ["猫がいます。"], language="ja").bleu.signature
    assert "tok:char" in signature or "tok:ja-mecab" in signature


def test_texts_of_different_lengths_are_refused() -> None:
    with pytest.raises(DragomanError, match="24 translations but 23 references"):
        score(GOOD, REFERENCES[1:])
    with pytest.raises(DragomanError, match="no references"):
        score(GOOD)
    with pytest.raises(DragomanError, match="no translations"):
        score([], [])
    with pytest.raises(DragomanError, match="24 translations but 1 references"):
        compare(GOOD, BAD, ["one"])


def test_scoring_does_not_import_torch() -> None:
    code = "import sys, dragoman.decoding.scoring as s; s.score(['a'], ['a']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

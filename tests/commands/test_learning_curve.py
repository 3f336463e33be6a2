import json
import math

from dragoman.errors import EXIT_USER_ERROR

from ..command_line import run_command
from ..small import TINY

SHORT = [*TINY, "training.steps=6", "evaluation.every=2", "evaluation.bleu=false"]


def test_runs_on_parts_of_the_data_give_a_curve_and_a_second_command_uses_them(data, tmp_path):
    words = ["learning-curve", "tiny", "--data", str(data.path), "--out", "curve", "--workers", "1", *SHORT]
    done = run_command(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    pairs = len(data.pairs("train"))
    assert [part["pairs"] for part in content["parts"]] == [math.ceil(part * pairs) for part in (0.1, 0.33, 1)]
    events = sorted(tmp_path.glob("curve/*/events-0.jsonl"))
    assert [path.parent.name for path in events] == ["part-0.1", "part-0.33", "part-1"]
    steps = [path.read_text().count("step_done") for path in events]
    shown = run_command(*words, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert content["text"][:40] in shown.stdout
    assert [path.read_text().count("step_done") for path in events] == steps, "finished runs are used as they are"


def test_parts_that_are_no_numbers_get_one_sentence(data, tmp_path):
    words = ["learning-curve", "tiny", "--data", str(data.path), "--out", "curve"]
    for parts, sentence in (("a,b", "is not a list of numbers"), ("0.1,nan,1", "each must be above 0 and at most 1")):
        done = run_command(*words, "--parts", parts, cwd=tmp_path)
        assert done.returncode == EXIT_USER_ERROR
        assert sentence in done.stderr
    assert not (tmp_path / "curve").exists()

"""Estimates of a synthesis before it starts."""

import json
from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.synthesis import synthesis_estimate
from dragoman.synthesis.shard_store import ShardStore
from dragoman.synthesis.synthesis_estimate import FIRST_LINES, SynthesisEstimate, estimate_synthesis, sample_lines
from dragoman.synthesis.synthesizer import SynthesisRequest
from dragoman.synthesis.worker_connection import ShardResult, WorkerConnection

from ..command_line import run_command
from ..synthesis_models import LINES


def test_the_sample_is_of_the_whole_text_and_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{number}\n" for number in range(5000)))
    lines, sample = sample_lines([tmp_path / "text"], 100)
    assert (lines, len(sample), len(set(sample))) == (5000, 100, 100)
    assert 2000 < sum(map(int, sample)) / 100 < 3000
    assert sample_lines([tmp_path / "text"], 100)[1] == sample


def test_time_and_cost_follow_from_the_speed_of_all_machines() -> None:
    estimate = SynthesisEstimate(36000, {"a": 3.0, "b": 7.0}, price_per_hour=2.5)
    assert (estimate.seconds, estimate.cost) == (3600, 2.5)


def test_doctor_estimates_a_synthesis_and_writes_nothing(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis_estimate, "MEASURED_S", 0.0)
    done = run_command("doctor", str(models / "int8"), str(text), "money.price_per_hour=[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "90 lines take about" in done.stdout
    assert "USD" in done.stdout
    assert list(tmp_path.iterdir()) == [text]


@pytest.mark.parametrize("backward", [True, False])
def test_doctor_counts_the_time_of_scores(
    models: Path, text: Path, monkeypatch: pytest.MonkeyPatch, *, backward: bool
) -> None:
    monkeypatch.setattr(synthesis_estimate, "MEASURED_S", 0.0)
    results = record_results(monkeypatch)
    option = ["--score-back-with", str(models / "backward")] if backward else []
    done = run_command("doctor", str(models / "int8"), str(text), *option, "--json")
    assert done.returncode == 0, done.stderr
    found, [result] = json.loads(done.stdout), results
    seconds = result.seconds + result.tokenizing_s
    assert (0 < result.scoring_s < result.seconds) if backward else result.scoring_s == 0
    assert found["scoring_share"] == {"localhost": pytest.approx(result.scoring_s / seconds)}
    assert found["seconds"] == pytest.approx(len(LINES) / FIRST_LINES * seconds)


def test_doctor_scores_as_many_pairs_as_the_synthesis_will(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long text, few lines are scored with the translation of another one."""
    monkeypatch.setattr(synthesis_estimate, "MEASURED_S", 0.0)
    results, store = record_results(monkeypatch), ShardStore(tmp_path)
    for number, repeats in enumerate((1, 1000)):
        text = tmp_path / "text.en"
        text.write_text("".join(f"{line}\n" for line in LINES * repeats))
        request = SynthesisRequest(models / "int8", [text], tmp_path, device="cpu", backward=models / "backward")
        estimate_synthesis(request)
        store.write(number, results[-1].content)
    short, long = (len(store.read_header(number).mismatched_scores) for number in range(2))
    assert short > FIRST_LINES / 2
    assert long < FIRST_LINES / 8


@pytest.mark.parametrize(("options", "candidates", "engine"), [
    (["--n-best", "2"], 2, "CTranslate2"), (["--sample", "--n-best", "3"], 3, "torch")
])  # fmt: skip
def test_doctor_translates_as_the_synthesis_will(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], candidates: int,
    engine: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(synthesis_estimate, "MEASURED_S", 0.0)
    results, store = record_results(monkeypatch), ShardStore(tmp_path)
    done = run_command("doctor", str(models / "torch"), str(text), *options, "--json")
    assert done.returncode == 0, done.stderr
    assert engine in json.loads(done.stdout)["machines"]["localhost"]
    store.write(0, results[-1].content)
    assert max(len(found) for _, found in store.read(0)[1]) == candidates


@pytest.mark.parametrize("option", [["--score-back-with", "backward"], ["--n-best", "2"], ["--sample"]])
def test_options_of_a_synthesis_need_a_model_and_texts(option: list[str]) -> None:
    done = run_command("doctor", "tiny", *option)
    assert done.returncode == 2
    assert f"{option[0]} is for a synthesis: add its model and texts" in done.stderr


def test_a_text_without_lines_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DragomanError, match="has no lines"):
        sample_lines([tmp_path / "empty"], 10)


def record_results(monkeypatch: pytest.MonkeyPatch) -> list[ShardResult]:
    """All results that workers send from now on."""
    results, receive = list[ShardResult](), WorkerConnection.receive_result

    def receive_and_record(connection: WorkerConnection) -> ShardResult:
        results.append(receive(connection))
        return results[-1]

    monkeypatch.setattr(WorkerConnection, "receive_result", receive_and_record)
    return results

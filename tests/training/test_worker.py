from dataclasses import replace
from types import SimpleNamespace

import pytest

from dragoman import event_log
from dragoman.corpus.data_mixture import open_data
from dragoman.corpus.dataset import text_files
from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import EvaluationDone, PeakMeasured, RunEnded, RunStarted
from dragoman.files import read_json
from dragoman.run_folder import RunFolder
from dragoman.training import worker
from dragoman.training.worker import TrainingJob, check_shares, open_run
from dragoman.worker_environment import RESTARTED

from ..small import tiny
from .recorded_run import FakeScorer


def test_a_new_run_folder_has_the_settings_and_can_be_opened_again(data, tmp_path):
    run = RunFolder(tmp_path / "runs" / "new")
    assert open_run(run, tiny(), data) is None
    assert run.config.exists()
    assert open_run(run, tiny(), data) is None


def test_a_run_resumes_with_more_steps_but_not_with_another_model_or_batch(data, tmp_path):
    run = RunFolder(tmp_path / "run")
    open_run(run, tiny(), data)
    assert open_run(run, tiny("training.steps=100"), data) is None
    problem = open_run(run, tiny("model.d_model=64", "batch.seed=7"), data)
    assert "batch.seed was 1, not 7; model.d_model was 32, not 64" in problem
    assert "choose another --out" in problem


@pytest.mark.parametrize(("before", "after"), [("muon", "adamw"), ("adamw", "muon")])
def test_a_run_does_not_resume_with_another_optimizer(data, tmp_path, before, after):
    run = RunFolder(tmp_path / "run")
    open_run(run, tiny(f"optimizer.algorithm={before}"), data)
    assert open_run(run, tiny(f"optimizer.algorithm={before}", "optimizer.beta2=0.9"), data) is None
    problem = open_run(run, tiny(f"optimizer.algorithm={after}"), data)
    assert f"optimizer.algorithm was {before}, not {after}" in problem


def test_a_run_does_not_resume_on_another_data_set(data, tmp_path):
    run = RunFolder(tmp_path / "run")
    open_run(run, tiny(), data)
    other = SimpleNamespace(manifest=SimpleNamespace(identity="other"))
    assert "was trained on another data set" in open_run(run, tiny(), other)


def test_a_run_resumes_with_the_same_data_sets_and_weights_alone(data, old_data, tmp_path):
    run, mixture = RunFolder(tmp_path / "run"), [str(data.path), f"{old_data.path}@0.3"]
    open_run(run, tiny(), open_data(mixture))
    assert open_run(run, tiny(), open_data(mixture)) is None
    for other in (mixture[:1], mixture[::-1], [mixture[0], f"{old_data.path}@0.4"]):
        assert "on several with other weights" in open_run(run, tiny(), open_data(other))


def test_a_folder_that_is_not_a_run_is_refused(data, tmp_path):
    (tmp_path / "thesis.txt").write_text("important")
    assert "exists and is not a run" in open_run(RunFolder(tmp_path), tiny(), data)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_written_is_reported(data, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in open_run(RunFolder(tmp_path / "file" / "run"), tiny(), data)


def test_there_must_be_one_share_for_each_worker():
    check_shares(tiny("training.shares=[3,1]"), 2)
    check_shares(tiny("training.shares=auto"), 3)
    with pytest.raises(
        DragomanError, match=r"training\.shares = \[3\.0, 1\.0\] has 2 entries, but there are 3 workers"
    ):
        check_shares(tiny("training.shares=[3,1]"), 3)


@pytest.fixture
def job(data, tmp_path, monkeypatch) -> TrainingJob:
    monkeypatch.setattr(worker, "measure_peak", lambda *_: PeakMeasured(flops_per_s=1e9))
    return TrainingJob(tiny("training.steps=2"), data.path, tmp_path / "run")


def train(job: TrainingJob) -> str:
    return worker.train(job, lambda *_: FakeScorer(), lambda *_: [])


def test_a_worker_trains_and_logs_its_events(job):
    assert train(job) == "finished"
    events = RunFolder(job.run).events()
    assert [type(event) for event in events[:2]] == [PeakMeasured, RunStarted]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].peak_memory_bytes > 0


def test_a_worker_that_was_killed_does_not_measure_its_machine_again(job, monkeypatch):
    monkeypatch.setenv(RESTARTED, "1")
    assert train(job) == "finished"
    assert not [event for event in RunFolder(job.run).events() if isinstance(event, PeakMeasured)]


def test_a_run_that_another_process_trains_is_refused(job, monkeypatch):
    train(job)
    monkeypatch.setattr(event_log, "LOCK_TIMEOUT_S", 0.0)
    log = EventLog(RunFolder(job.run).events_of(0))
    log.lock()
    with pytest.raises(DragomanError, match="is being trained by another process"):
        train(job)
    log.close()


def test_other_evaluation_sets_are_evaluated_recorded_and_part_of_the_configuration(job, data):
    files = ",".join(map(str, text_files(data.path, "valid", data.languages)))
    job = replace(job, also_evaluate=[f"again={files}"])
    assert train(job) == "finished"
    [done] = [event for event in RunFolder(job.run).events() if isinstance(event, EvaluationDone)]
    assert done.sets["again"]["nll"] == done.nll
    assert read_json(RunFolder(job.run).config)["also_evaluate"] == job.also_evaluate
    assert train(replace(job, also_evaluate=())) == "finished", "they are no part of the run's identity"


def test_nothing_is_written_if_an_evaluation_set_cannot_be_read(job):
    with pytest.raises(DragomanError, match=r"--also-evaluate news: no\.en: cannot be read"):
        train(replace(job, also_evaluate=["news=no.en,no.de"]))
    assert not job.run.exists()

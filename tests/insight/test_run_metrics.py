"""Metrics of runs, as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from dragoman.events import RunStarted
from dragoman.insight.live_server import WatchedRuns, make_app

from .synthetic_runs import PRICED, host_sample, synthetic_run, untested, write_run


def scrape(*runs, token=None, address="/metrics"):
    """Values by name and labels."""
    with TestClient(make_app(WatchedRuns(runs, untested), token), base_url="http://localhost") as client:
        response = client.get(address)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    samples = [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]
    return {
        (each.name.removeprefix("dragoman_run_"), *(each.labels[name] for name in sorted(each.labels))): each.value
        for each in samples
    }


def test_a_running_run_shows_its_progress_cost_and_hardware(tmp_path):
    sample = host_sample("a", 100)
    events = [*synthetic_run(120, total_steps=400, overrides=PRICED, ended=None), sample]
    values = scrape(write_run(tmp_path / "run", events))
    assert values["steps_total", "synthetic"] == 120
    assert values["planned_steps", "synthetic"] == 400
    assert values["tokens_per_second", "synthetic"] == 49_000
    assert values["tokens_total", "synthetic"] == 120 * 49_000
    assert 250 < values["remaining_seconds", "synthetic"] < 320
    assert values["cost", "EUR", "synthetic"] > 0
    assert values["restarts_total", "synthetic"] == 0
    assert values["workers", "synthetic"] == 2
    assert 0 < values["loss", "synthetic"] < 10
    assert values["validation_bleu", "synthetic"] > 0
    assert values["cpu_utilisation_ratio", "a", "synthetic"] == sample.cpu_use
    gpus = {name: value for name, value in values.items() if name[0] == "gpu_utilisation_ratio"}
    assert len(gpus) == len(sample.gpus)


def test_a_resumed_run_counts_its_restarts_and_each_step_once(tmp_path):
    first = synthetic_run(100, total_steps=400, ended=None)
    again = [
        event if not isinstance(event, RunStarted) else type(event)(**{**event.__dict__, "resumed_step": 80})
        for event in synthetic_run(120, total_steps=400, start_at_s=1.7e9 + 1000)
        if getattr(event, "step", 81) > 80
    ]
    values = scrape(write_run(tmp_path / "run", [*first, *again]))
    assert values["restarts_total", "synthetic"] == 1
    assert values["steps_total", "synthetic"] == 120
    assert values["tokens_total", "synthetic"] == 120 * 49_000
    assert not any(name[0] == "remaining_seconds" for name in values)
    assert values["state", "synthetic", "finished"] == 1


def test_several_runs_are_told_apart(tmp_path):
    runs = [write_run(tmp_path / name, synthetic_run(60)) for name in ("base", "bf16")]
    values = scrape(*runs)
    assert values["steps_total", "base"] == values["steps_total", "bf16"] == 60


def test_metrics_need_the_token_of_the_page(tmp_path):
    run = write_run(tmp_path / "run", synthetic_run(60))
    with TestClient(make_app(WatchedRuns([run], untested), "secret")) as client:
        assert client.get("/metrics").status_code == 403
    assert scrape(run, token="secret", address="/metrics?token=secret")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.data_mixture import open_data
from dragoman.doctor import step_benchmark, step_windows
from dragoman.doctor.measure_and_estimate import benchmark_request
from dragoman.doctor.measurements import BenchmarkRequest
from dragoman.doctor.step_benchmark import MAX_FIXED, benchmark, run_request, split_pass
from dragoman.doctor.synthetic_data import SyntheticDataSet
from dragoman.model.architecture import Architecture, parameter_count

from ..small import TINY, tiny


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    monkeypatch.setattr(step_windows, "WINDOW_S", 0.0)
    monkeypatch.setattr(step_benchmark, "MAX_S", {"cpu": 0.05, "cuda": 0.05})


def test_the_model_of_the_recipe_is_benchmarked():
    settings = tiny("tokenizer.vocabulary_size=400")
    found = benchmark(settings, SyntheticDataSet(400, count=200))
    assert found.parameters == parameter_count(Architecture(vocabulary=400, **settings.model.model_dump()))
    assert found.tokens_per_s > 0
    assert found.update_s > 0
    assert found.copy_s > 0
    assert found.compress_s > 0
    assert found.fastest < 1 < found.slowest
    assert 200 < found.step_tokens <= 400, "source and target tokens of a batch"
    assert sum(rows * columns for rows, columns in found.matrices) < found.parameters
    assert found.device == "CPU" or found.gpus


def test_memory_holds_at_least_the_model_and_more_tokens_fit_than_are_used():
    found = benchmark(tiny(), SyntheticDataSet(400, count=200), quick=True)
    assert 4 * 4 * found.parameters < found.memory_peak_bytes < found.memory_bytes
    assert found.largest_micro_batch_tokens > 200


def test_a_worker_of_several_tries_its_share(monkeypatch):
    tried = []
    train = step_benchmark.StepTrials._train
    monkeypatch.setattr(
        step_benchmark.StepTrials,
        "_train",
        lambda trials, settings, sink: tried.append(settings.batch.tokens) or train(trials, settings, sink),
    )
    benchmark(tiny("batch.tokens=4000"), SyntheticDataSet(400, count=400), workers=4)
    assert tried == [256, 1000], "batches grow up to the share"
    tried.clear()
    benchmark(tiny("batch.tokens=4000"), SyntheticDataSet(400, count=400), workers=4, quick=True)
    assert tried == [1000]
    monkeypatch.setattr(step_benchmark, "LONG_S", 0.0)
    tried.clear()
    benchmark(tiny("batch.tokens=4000"), SyntheticDataSet(400, count=400))
    assert tried == [256], "steps are long enough"


@pytest.mark.parametrize("options", [["optimizer.ema_decay=0.9", "optimizer.algorithm=muon"], ["training.shares=[0,1]"],
                                     ["exchange.method=local"], ["checkpoint.average=3"]])  # fmt: skip
def test_any_settings_can_be_benchmarked(options):
    found = run_request(BenchmarkRequest("tiny", [*TINY, *options], quick=True), 1, [1, 1])
    assert found.tokens_per_s > 0


def test_sentences_longer_than_a_share_are_benchmarked():
    request = BenchmarkRequest("tiny", [*TINY, "tokenizer.vocabulary_size=400"], [(3, 4), (300, 310)], quick=True)
    assert run_request(request, None, [None, 2]).tokens_per_s > 0


def test_a_data_set_gives_sentences_and_the_tokens_of_a_step(data):
    request = benchmark_request(data, "tiny", TINY, quick=True)
    found = run_request(request, None, [None])
    lengths = data.pairs("train").lengths()
    per_pair = lengths.sum() / len(lengths)
    assert per_pair < found.step_tokens <= 400


def test_several_data_sets_are_benchmarked_as_one(data, old_data):
    found = benchmark(tiny(), open_data([data.path, f"{old_data.path}@0.3"]), quick=True)
    assert 200 < found.step_tokens <= 400


def test_nothing_of_the_trial_run_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(step_benchmark.tempfile, "tempdir", str(tmp_path))
    benchmark(tiny(), SyntheticDataSet(400, count=200), quick=True)
    assert list(tmp_path.iterdir()) == []


@given(
    fixed_s=st.floats(0, 1), tokens_per_s=st.floats(10, 1e6), fewer=st.integers(10, 1000), more=st.integers(1001, 9000)
)
def test_the_time_of_a_pass_is_split_into_a_fixed_cost_and_a_rate(fixed_s, tokens_per_s, fewer, more):
    passes = [(float(tokens), fixed_s + tokens / tokens_per_s) for tokens in (fewer, more)]
    pass_s, speed = split_pass(passes)
    assert pass_s + more / speed == pytest.approx(passes[1][1])
    if fixed_s < MAX_FIXED * passes[1][1] and fewer / tokens_per_s > 1e-6:
        assert pass_s == pytest.approx(fixed_s, rel=1e-3, abs=1e-6)


def test_scattered_times_still_give_a_positive_rate():
    assert split_pass([(100.0, 2.0), (200.0, 1.0)]) == (0.0, 200.0)
    assert split_pass([(100.0, 1.0)]) == (0.0, 100.0)
    assert split_pass([(100.0, 1.0), (200.0, 1.0001)]) == pytest.approx((0.50005, 200 / 0.50005))

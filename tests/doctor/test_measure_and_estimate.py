"""Estimates from given measurements, without machines."""

from dataclasses import replace

import pytest

from dragoman.corpus.data_mixture import open_data
from dragoman.doctor import measure_and_estimate
from dragoman.doctor.measure_and_estimate import ASSUMED_LINK, assess, benchmark_request, step_conditions
from dragoman.doctor.measurements import BenchmarkRequest, Measurements, StepBenchmark
from dragoman.errors import DragomanError
from dragoman.launch.ssh import Machine, SshClient
from dragoman.recipe import resolve
from dragoman.step_model import PLAIN, TcpLink, choose

FAST = StepBenchmark(
    device="CPU", gpus=0, driver="", torch="2", step_tokens_per_s=27_000.0, tokens_per_s=30_000.0, pass_s=0.0,
    update_s=0.05, fastest=0.95, slowest=1.05, step_tokens=16_000.0, cores=2, other_cores=0.0, other_gpu_use=0.0,
    copy_s=0.0, compress_s=0.0,
    micro_tokens=1000, micro_batches_split=False, parameters=61_000_000, matrices=[(512, 2048)], memory_bytes=1,
    memory_peak_bytes=1, largest_micro_batch_tokens=1, free_disk_bytes=10**12, nominal_bits_per_s={}, benchmark_s=1.0,
)  # fmt: skip
LINKS = {("a", "b"): TcpLink(1e8, 0.001), ("b", "a"): TcpLink(9e7, 0.002)}
FOUND = Measurements({"a": FAST, "b": FAST}, LINKS, {"a": 0.0, "b": -90.0})
MACHINES = [Machine("a"), Machine("b")]


def settings_with(*overrides: str):
    return resolve("transformer-base", overrides).settings


def test_a_run_is_as_slow_as_its_slowest_link_in_bandwidth_and_latency():
    conditions = step_conditions(FOUND, MACHINES, settings_with())
    assert conditions.link == TcpLink(9e7, 0.002)
    assert FOUND.slowest_link == ("b", "a")


def test_auto_is_predicted_with_the_method_that_training_would_choose():
    slow = step_conditions(FOUND, MACHINES, settings_with("exchange.method=auto"))
    assert slow.method == choose(slow.exchange, slow.compute_s).method
    assert slow.method.name == "local"
    alone = step_conditions(Measurements({"a": FAST}, {}, {}), [Machine("a")], settings_with("exchange.method=auto"))
    assert alone.method == PLAIN
    several = step_conditions(Measurements({"a": FAST}, {}, {}), [Machine("a", 4)], settings_with())
    assert several.method == PLAIN
    assert alone.link == ASSUMED_LINK


def test_a_method_that_is_set_is_predicted_with_its_options():
    options = ("exchange.method=local", "exchange.every=40", "exchange.wire_format=int8")
    method = step_conditions(FOUND, MACHINES, settings_with(*options)).method
    assert (method.interval, method.wire_format, method.overlap) == (40, "int8", 1)
    assert step_conditions(FOUND, MACHINES, settings_with("exchange.method=powersgd")).method.rank == 8


def test_a_host_counts_with_all_its_workers():
    conditions = step_conditions(FOUND, [Machine("a", 3), Machine("b")], settings_with())
    assert conditions.workers == 4
    assert conditions.with_machines(4).workers == 8


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(measure_and_estimate, "measure", lambda *_: FOUND)


def test_questions_are_answered_beside_the_current_plan(measured):
    found = assess(
        MACHINES, BenchmarkRequest("transformer-base", []), settings_with("exchange.method=plain"), SshClient(),
        ["link=100gbit", "hosts=4"],
    )  # fmt: skip
    assert not found.current.sensible
    assert "The link from b to a carries 90 Mbit/s" in found.current.limits[0]
    assert found.what_if["link=100gbit"].sensible
    assert found.what_if["hosts=4"].limits[0].startswith("The link carries")
    assert [(problem.host, "clock" in problem.sentence) for problem in found.problems] == [("b", True)]


def test_twice_the_machines_cost_twice_as_much_per_hour(measured):
    settings = settings_with("exchange.method=plain", "money.price_per_hour=[2.0]")
    found = assess(MACHINES, BenchmarkRequest("x", []), settings, SshClient(), ["hosts=4"])
    assert found.current.cost == pytest.approx(4.0 * found.current.total_s / 3600)
    assert found.what_if["hosts=4"].cost == pytest.approx(8.0 * found.what_if["hosts=4"].total_s / 3600)


def test_a_full_disk_is_a_problem(monkeypatch):
    full = replace(FOUND, benchmarks={"a": replace(FAST, free_disk_bytes=10), "b": FAST}, clock_offsets_s={})
    monkeypatch.setattr(measure_and_estimate, "measure", lambda *_: full)
    [problem] = assess(MACHINES, BenchmarkRequest("x", []), settings_with(), SshClient()).problems
    assert problem.host == "a"
    assert "10 B of free disk space" in problem.sentence


def test_a_question_that_is_not_understood_is_reported_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(measure_and_estimate, "measure", pytest.fail)
    with pytest.raises(DragomanError, match="--what-if"):
        assess(MACHINES, BenchmarkRequest("x", []), settings_with(), SshClient(), ["speed=9"])


def test_a_data_set_gives_its_vocabulary_and_lengths(data):
    assert benchmark_request(None, "tiny", ["a=1"]) == BenchmarkRequest("tiny", ["a=1"])
    request = benchmark_request(data, "tiny", ["a=1"])
    assert request.overrides == ["a=1", f"tokenizer.vocabulary_size={data.tokenizer.padded_vocab_size}"]
    lengths = data.pairs("train").lengths()
    assert (request.pairs, request.data) == (len(lengths), [str(data.path.resolve())])
    assert max(map(max, request.lengths)) == lengths.max(), "the longest sentence limits what fits into a batch"


def test_several_data_sets_give_the_lengths_of_an_epoch(data, old_data):
    mixed = open_data([data.path, f"{old_data.path}@0.5"])
    request = benchmark_request(mixed, "tiny", [])
    assert request.pairs == len(data.pairs("train")) + len(old_data.pairs("train")) // 2
    assert request.data == mixed.arguments
    assert max(map(max, request.lengths)) == mixed.pairs("train").lengths().max()


def assessed(monkeypatch, *benchmarks: StepBenchmark, questions=()):
    """The assessment of machines with given benchmarks, on a fast network."""
    hosts = ["a", "b"][: len(benchmarks)]
    links = {pair: TcpLink(1e11) for pair in LINKS} if len(hosts) > 1 else {}
    found = Measurements(dict(zip(hosts, benchmarks, strict=True)), links, dict.fromkeys(hosts, 0.0))
    monkeypatch.setattr(measure_and_estimate, "measure", lambda *_: found)
    machines = [Machine(host) for host in hosts]
    settings = settings_with("exchange.method=plain")
    return assess(machines, BenchmarkRequest("x", [], quick=True), settings, SshClient(), questions)


def test_estimates_have_the_range_of_the_benchmarks(monkeypatch):
    found = assessed(monkeypatch, replace(FAST, fastest=0.9, slowest=1.5), questions=["hosts=2"])
    for estimate in (found.current, found.what_if["hosts=2"]):
        assert estimate.step_low_s < estimate.prediction.step_s < estimate.step_high_s
        assert estimate.total_high_s == pytest.approx(50_000 * estimate.step_high_s)
    current = found.current
    step_s = current.prediction.step_s
    assert (current.step_low_s, current.step_high_s) == pytest.approx((0.9 * step_s, 1.5 * step_s))
    low, high = current.tokens_per_s_range
    assert low < current.tokens_per_s < high
    assert found.quick


def test_a_step_of_one_worker_is_predicted_as_it_was_measured(monkeypatch):
    prediction = assessed(monkeypatch, replace(FAST, pass_s=0.01)).current.prediction
    assert prediction.step_s == pytest.approx(0.01 + 16_000 / 30_000 + 0.05)


def test_a_quiet_machine_leaves_no_doubts(monkeypatch):
    assert assessed(monkeypatch, FAST, FAST).doubts == []


def test_busy_machines_are_named_with_what_to_expect(monkeypatch):
    busy = replace(FAST, other_cores=1.3, slowest=2.0)
    [doubt] = assessed(monkeypatch, busy).doubts
    assert doubt == (
        "Other processes use 1.3 of 2 cores of a: expect 13,714 to 28,872 tokens/s; alone about 27,429, which the "
        "tables show."
    )
    [doubt] = assessed(monkeypatch, busy, busy).doubts
    assert "1.3 of 2 cores of a, 1.3 of 2 cores of b" in doubt


def test_scattered_steps_a_busy_gpu_and_batches_that_do_not_fit_are_doubts(monkeypatch):
    scattered = replace(FAST, fastest=0.8, slowest=1.2, other_gpu_use=0.4, micro_batches_split=True)
    assert assessed(monkeypatch, scattered, FAST).doubts == [
        "The times of steps on a scatter: expect 42,066 to 53,190 tokens/s.",
        "Other processes keep the GPU of a busy 40 % of the time: alone, training is faster.",
        "Micro-batches of 1,000 tokens do not fit into the memory of a and are split.",
    ]

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.device_timeline import timeline_of
from dragoman.telemetry.step_parts import PARTS, Part
from dragoman.telemetry.step_timing import StepTimer

from .fake_gpu import FakeGpu

spans = st.floats(0, 10)
work = st.tuples(st.sampled_from(PARTS), spans, spans)
"""A part, Python's time in it, and the time of the kernels that it launches."""


@given(st.lists(st.tuples(st.lists(work, max_size=6), st.integers(0, 3)), max_size=12))
def test_spans_that_are_read_late_are_those_of_their_own_steps(steps):
    """Whatever is launched, and however many later steps are queued before a step is read."""
    gpu, unread = FakeGpu(), []
    part: Part = "outside"
    started_at = boundary_at = gpu.reaches_at
    total_s = 0.0
    for works, stay_unread in steps:
        expected = dict.fromkeys(PARTS, 0.0)
        for next_part, python_s, kernels_s in works:
            expected[part] += gpu.reaches_at - boundary_at
            part, boundary_at = next_part, gpu.reaches_at
            gpu.timer.enter(part)
            gpu.launch(kernels_s)
            gpu.now += python_s
        expected[part] += gpu.reaches_at - boundary_at
        boundary_at = gpu.reaches_at
        unread.append((gpu.timer.take(), expected))
        while len(unread) > stay_unread:
            spans, expected = unread.pop(0)
            spent = spans.read(alone=False)
            assert spent == pytest.approx(expected, abs=1e-9)
            total_s += sum(spent.values())
    total_s += sum(sum(spans.read(alone=False).values()) for spans, _ in unread)
    assert total_s == pytest.approx(boundary_at - started_at, abs=1e-9), "all of the time line is in one span"


def step(gpu: FakeGpu, *, data_s: float = 0.0, kernels_s: float = 1.0, python_s: float = 0.1) -> None:
    gpu.timer.enter("data")
    gpu.now += data_s
    gpu.timer.enter("compute")
    gpu.launch(kernels_s)
    gpu.now += python_s
    gpu.timer.enter("update")
    gpu.launch(0.25)
    gpu.timer.enter("host")


def test_waiting_for_data_counts_only_while_the_gpu_is_idle():
    gpu = FakeGpu()
    step(gpu)
    gpu.timer.take()
    step(gpu, data_s=2.0)  # The GPU has 1.15 s of the first step left.
    spent = gpu.timer.take().read(alone=False)
    assert spent["data"] == pytest.approx(0.85)
    assert spent["compute"] == pytest.approx(1.0)
    assert spent["update"] == pytest.approx(0.25)


def test_python_counts_only_while_the_gpu_is_idle():
    gpu = FakeGpu()
    step(gpu)
    gpu.timer.take()
    gpu.now += 3.0
    step(gpu)
    spent = gpu.timer.take().read(alone=False)
    assert spent["host"] == pytest.approx(3.0 - 1.15)
    assert sum(spent.values()) == pytest.approx(3.0 - 1.15 + 1.25)


def test_spans_continue_those_before():
    gpu = FakeGpu()
    step(gpu)
    spans = gpu.timer.take()
    gpu.timer.enter("update")
    gpu.launch(0.5)
    spans.extend(gpu.timer.take())
    assert spans.read(alone=False)["update"] == pytest.approx(0.75)


def test_events_are_reused():
    gpu = FakeGpu()
    spans = []
    for _ in range(1000):
        step(gpu)
        spans.append(gpu.timer.take())
        if len(spans) > 2:
            spans.pop(0).read(alone=False)
    assert gpu.events < 25


def test_the_known_compute_time_is_that_of_a_step_that_is_done_and_did_not_compile():
    gpu = FakeGpu()
    assert gpu.timer.compute_s == 0
    gpu.timer.enter("compute")
    with gpu.timer.compiling():
        gpu.now += 20.0
    step(gpu, kernels_s=1.0)
    gpu.timer.take()
    assert gpu.timer.compute_s == 0, "compiled in this step"
    step(gpu, kernels_s=2.0)
    gpu.now = gpu.reaches_at
    gpu.timer.take()
    assert gpu.timer.compute_s == pytest.approx(2.0)
    step(gpu, kernels_s=3.0)
    gpu.timer.take()
    assert gpu.timer.compute_s == pytest.approx(2.0), "the GPU has not computed the last one yet"


def test_a_gpu_that_is_alone_does_not_communicate():
    gpu = FakeGpu()
    for part in ("host", "exchange"):
        gpu.timer.enter(part)
        gpu.now += 1.0
    spent = gpu.timer.take().read(alone=True)
    assert (spent["host"], spent["exchange"]) == (2, 0)


@pytest.mark.gpu
def test_events_of_a_real_gpu_give_each_step_its_own_time():
    """Kernels of known relative length are queued, and read when all of them are."""
    clock_cycles = [4 * 10**7 * (1 + step % 3) for step in range(12)]
    torch.cuda._sleep(10**8)  # Wakes the GPU up.
    torch.cuda.synchronize()
    started_at = time.perf_counter()
    timer = StepTimer(timeline=timeline_of(torch.device("cuda")))
    unread = []
    for cycles in clock_cycles:
        timer.enter("compute")
        torch.cuda._sleep(cycles)
        timer.enter("host")
        unread.append(timer.take())
    assert not torch.cuda.current_stream().query(), "Python was ahead of the GPU"
    steps = [spans.read(alone=True) for spans in unread]
    wall_s = time.perf_counter() - started_at
    cycle_s = sum(step["compute"] for step in steps) / sum(clock_cycles)
    assert [step["compute"] for step in steps] == pytest.approx([cycle_s * cycles for cycles in clock_cycles], rel=0.2)
    assert sum(sum(step.values()) for step in steps) == pytest.approx(wall_s, rel=0.02)


@pytest.mark.gpu
def test_a_real_gpu_that_waits_for_python_is_host_bound():
    timer = StepTimer(timeline=timeline_of(torch.device("cuda")))
    timer.enter("host")
    torch.cuda.synchronize()
    started_at = time.perf_counter()
    time.sleep(0.2)
    slept_s = time.perf_counter() - started_at
    timer.enter("compute")
    assert timer.take().read(alone=True)["host"] == pytest.approx(slept_s, rel=0.05)

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.doctor.machine_load import CpuTimes, CpuUse
from dragoman.doctor.step_windows import MIN_UNCERTAINTY, MIN_WINDOWS, StepWindow, StepWindows, summarize
from dragoman.events import StepDone

IDLE, BUSY = CpuUse(2, 1.4, 0.0), CpuUse(2, 0.6, 1.4)
WINDOW = StepWindow(steps=4, tokens=4000, step_s=0.8, compute_s=0.6, alone_s=0.7, cpu=IDLE)


def step_done(step_s: float, compile_s: float = 0.0, tokens: int = 1000) -> StepDone:
    return StepDone(
        step=1, epoch=0, batch=0, loss=1.0, nll=1.0, gradient_norm=1.0, learning_rate=0.1, source_tokens=tokens // 2,
        target_tokens=tokens - tokens // 2, pairs=10, step_s=step_s, compute_s=0.75 * step_s, compile_s=compile_s,
        micro_batches=1,
    )  # fmt: skip


def collect(steps: list[StepDone], *, on_gpu: bool = False, thread_share: float = 0.5, cores: float = 2) -> StepWindows:
    """Windows of steps during which the training thread ran for a part of the time, and others on one core."""
    at_s = 0.0

    def read_times() -> CpuTimes:
        return CpuTimes(at_s, thread_share * at_s, 0.6 * at_s, 1.6 * at_s)

    windows = StepWindows(on_gpu=on_gpu, cores=cores, read_times=read_times)
    for step in steps:
        at_s += step.step_s
        windows.add(step)
    return windows


def test_windows_leave_out_the_first_step_and_those_that_compile():
    recompiling = [step_done(0.2), step_done(30.0, compile_s=29.0)]
    found = collect([step_done(9.0), *[step_done(0.2)] * 4, *recompiling, *[step_done(0.2)] * 4])
    assert [(window.steps, window.tokens) for window in found.windows] == [(4, 4000), (4, 4000)]
    assert found.windows[0].step_s == pytest.approx(0.8)
    assert found.windows[0].compute_s == pytest.approx(0.6)


def test_a_gpu_has_one_window_more_to_warm_up():
    steps = [step_done(9.0), *[step_done(0.2)] * 8]
    assert len(collect(steps).windows) == 1 + len(collect(steps, on_gpu=True).windows) == 2


def test_a_step_alone_takes_the_cpu_time_of_the_training_thread():
    [window] = collect([step_done(1.0), step_done(1.0)], thread_share=0.5).windows
    assert window.alone_s == pytest.approx(0.5)
    assert window.cpu.others == pytest.approx(1.0)
    [window] = collect([step_done(1.0), step_done(1.0)], thread_share=0.1, cores=0.75).windows
    assert window.alone_s == pytest.approx(0.8), "a quota limits all threads together"
    [window] = collect([step_done(1.0), *[step_done(1.0)] * 2], on_gpu=True).windows
    assert window.alone_s == window.step_s, "a GPU does not compute on the thread"


@pytest.mark.parametrize(("last_s", "agree"), [(0.8, True), (0.82, True), (0.95, False)])
def test_windows_agree_once_there_are_enough_that_differ_little(last_s, agree):
    found = collect([step_done(0.8)] * MIN_WINDOWS)
    assert not found.agree, "too few"
    found.windows.append(replace(WINDOW, tokens=1000, step_s=last_s))
    assert found.agree == agree


def test_larger_batches_are_not_taken_for_slower_steps():
    found = summarize([WINDOW, replace(WINDOW, tokens=8000, step_s=1.6, compute_s=1.2)])
    assert (found.fastest, found.slowest) == (1 - MIN_UNCERTAINTY, 1 + MIN_UNCERTAINTY)
    assert (found.tokens, found.step_s, found.compute_s) == pytest.approx((1500, 0.3, 0.225))


def test_the_typical_window_is_the_median_and_one_hiccup_only_widens_the_range():
    found = summarize([WINDOW] * 4 + [replace(WINDOW, step_s=8.0)])
    assert found.step_s == pytest.approx(0.2)
    assert found.slowest == pytest.approx((1 + 10) / 2), "on average of the slowest third"
    assert found.other_cores == 0


def test_beside_other_processes_the_best_case_is_a_step_alone_and_the_range_has_what_was_measured():
    found = summarize([replace(WINDOW, step_s=step_s, cpu=BUSY) for step_s in (1.6, 2.0, 2.8)])
    assert found.step_s == pytest.approx(0.7 / 4)
    assert found.slowest == pytest.approx(2.8 / 0.7)
    assert found.other_cores == pytest.approx(1.4)


@given(st.lists(st.tuples(st.floats(0.7, 9), st.floats(0.1, 0.7), st.booleans()), min_size=1, max_size=20))
def test_the_fastest_window_and_the_mean_of_all_lie_in_the_range(measured):
    windows = [
        replace(WINDOW, step_s=step_s, alone_s=alone_s, compute_s=step_s / 2, cpu=BUSY if busy else IDLE)
        for step_s, alone_s, busy in measured
    ]
    found = summarize(windows)
    steps_s = [window.step_s / window.steps for window in windows]
    assert found.fastest * found.step_s <= min(steps_s) * 1.0001
    assert fmean(steps_s) <= found.slowest * found.step_s * 1.0001
    assert found.compute_s == pytest.approx(found.update_s)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.step_parts import PARTS, split_step

spans = st.floats(0, 100)
spent_times = st.fixed_dictionaries(dict.fromkeys(PARTS, spans))


@given(spent_times, spans)
def test_parts_of_a_step_sum_to_its_wall_time(spent, straggler_s):
    times = vars(split_step(spent, straggler_s))
    step_s = times.pop("step_s")
    assert min(times.values()) >= 0
    assert sum(times.values()) == pytest.approx(step_s, abs=1e-9)
    in_steps_s = sum(seconds for part, seconds in spent.items() if part != "outside")
    assert step_s == pytest.approx(in_steps_s, abs=1e-9), "time outside of steps does not count"


@given(spent_times, st.lists(spans, min_size=2, max_size=5))
def test_straggler_wait_is_separate_from_communication(spent, ready_s):
    split_times = [split_step(spent, max(ready_s) - ready) for ready in ready_s]
    assert split_times[ready_s.index(max(ready_s))].straggler_s == 0, "the slowest waits for no one"
    assert all(times.straggler_s + times.communication_s == pytest.approx(spent["exchange"]) for times in split_times)

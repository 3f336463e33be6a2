"""The setting whose cost the benchmark measures."""

import pytest
from benchmarks.overlap_cost import choose_local
from hypothesis import given
from hypothesis import strategies as st

from dragoman.step_model import ExchangeConditions, RingLink


@given(st.floats(0.02, 1), st.floats(50, 200))
def test_the_chosen_local_steps_hide_the_link(step_s: float, link_mbit: float) -> None:
    method = choose_local(60_000_000, step_s, link_mbit)
    assert ExchangeConditions(RingLink(1e6 * link_mbit), 60_000_000, 2).hides(method, step_s)


def test_a_link_that_needs_no_local_steps_is_refused() -> None:
    with pytest.raises(SystemExit, match="auto chooses plain"):
        choose_local(60_000_000, 0.5, 1e6)

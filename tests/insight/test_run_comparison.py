from hypothesis import given
from hypothesis import strategies as st

from dragoman.insight.run_comparison import compare_runs, interpolate

from .synthetic_runs import PRICED, p_value, slower, topic


def value(comparison: dict, name: str) -> list[str]:
    return next(row["values"] for row in comparison["rows"] if row["name"] == name)


def test_only_settings_that_differ_are_named(open_run):
    few = compare_runs([open_run("a"), open_run("b", overrides=("batch.tokens=4000", *PRICED))], p_value(1.0))
    assert topic(few, "Settings") == "`batch.tokens`: a 8,192, b 4,000."
    assert few["settings"] == [{"name": "batch.tokens", "values": ["8,192", "4,000"]}]
    changed = ("batch.tokens=4000", "batch.seed=3", "training.seed=3", "model.dropout=0.2", "exchange.method=bf16")
    many = compare_runs([open_run("a"), open_run("b", overrides=(*changed, *PRICED))], p_value(1.0))
    assert topic(many, "Settings").startswith("5 differ: ")


def test_the_part_of_a_step_that_differs_most_is_named(open_run):
    found = compare_runs([open_run("a"), open_run("b", step=slower)], p_value(1.0))
    assert topic(found, "Speed") == (
        "b is 33 % slower than a: 32,667 against 49,000 tokens/s. Per million tokens, the largest difference is "
        "communication: 10 s more."
    )
    assert (
        topic(found, "Time")
        == "b took 3 min 20 s longer than a; the largest difference is communication, 3 min 20 s more."
    )


def test_losses_are_compared_at_the_same_step_and_after_the_same_time(open_run):
    found = compare_runs([open_run("a"), open_run("b", steps=200, step=slower)], p_value(1.0))
    assert value(found, "validation loss at step 200") == ["3.321", "3.321"]
    (after,) = (row for row in found["rows"] if row["name"].startswith("validation loss after 5 min"))
    assert after["values"][0] < after["values"][1] == "3.321", "in the same time, a took more steps"


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-5, 5)), min_size=1, max_size=8), st.floats(0, 1))
def test_interpolated_values_lie_between_their_neighbours(points, share):
    points = sorted(dict(points).items())
    x = points[0][0] + share * (points[-1][0] - points[0][0])
    found = interpolate(points, x)
    before = max((point for point in points if point[0] <= x), default=points[0])
    after = min((point for point in points if point[0] >= x), default=points[-1])
    low, high = sorted([before[1], after[1]])
    assert low - 1e-9 <= found <= high + 1e-9

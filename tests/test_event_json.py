import dataclasses
import json
import math
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import event_json
from dragoman.event_json import from_json, to_json
from dragoman.events import StepSkipped

VALUES = {
    int: st.integers(-(2**40), 2**40),
    float: st.floats(allow_nan=False),
    str: st.text(),
}


def values_for(annotation: object) -> st.SearchStrategy:
    if annotation in VALUES:
        return VALUES[annotation]
    options = typing.get_args(annotation)
    if type(None) in options:
        return st.none() | values_for(options[0])
    return st.just([]) if typing.get_origin(annotation) is list else st.just({})


@st.composite
def any_event(draw):
    kind = draw(st.sampled_from(sorted(event_json.KINDS.values(), key=lambda kind: kind.__name__)))
    return kind(**{field.name: draw(values_for(field.type)) for field in dataclasses.fields(kind)})


@given(any_event())
def test_every_event_survives_a_round_trip_through_json(event):
    line = to_json(event)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert from_json(line) == event


def test_a_loss_that_is_not_finite_can_be_recorded():
    event = from_json(to_json(StepSkipped(step=3, loss=math.nan, gradient_norm=math.inf, consecutive=1)))
    assert isinstance(event, StepSkipped)
    assert math.isnan(event.loss)
    assert event.gradient_norm == math.inf


@given(st.binary())
def test_a_damaged_line_is_skipped(line):
    assert from_json(line) is None

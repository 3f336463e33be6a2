import pytest

from dragoman.doctor.what_if_option import apply_what_if
from dragoman.errors import DragomanError
from dragoman.step_model import StepConditions, TcpLink, exchange_method

PAIR = StepConditions(
    parameters=1, step_tokens=1, tokens_per_s=(2.0, 1.0), update_s=0.0, link=TcpLink(1e8, 0.01), machines=2
)


def test_each_part_changes_the_conditions():
    changed = apply_what_if(PAIR, "link=2.5gbit, hosts=4,exchange=local")
    assert changed.link == TcpLink(2.5e9, 0.01)
    assert changed.tokens_per_s == (2.0, 1.0, 1.0, 1.0)
    assert changed.method == exchange_method("local")


@pytest.mark.parametrize("text", ["", "link=fast", "hosts=0", "hosts=-1", "exchange=pigeon", "speed=9", "link=1gbit;"])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(DragomanError, match="link=1gbit"):
        apply_what_if(PAIR, text)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.score_gains import Gain, describe_gains, net_gain


def test_gains_and_losses_are_told_in_words():
    gains = {"valid": Gain(5.1, 4.2, 6.0), "news": Gain(-1.3, -1.9, -0.8), "talks": Gain(0.1, -0.3, 0.5)}
    assert describe_gains(gains) == (
        "gained 5.1 BLEU (4.2 to 6.0) on the validation set, lost 1.3 BLEU (0.8 to 1.9) on news, "
        "showed no significant change (+0.1 BLEU, -0.3 to +0.5) on talks"
    )


@given(low=st.floats(1e-6, 5), width=st.floats(0, 5), sign=st.sampled_from([1, -1]))
def test_no_end_of_a_significant_change_is_shown_as_zero(low, width, sign):
    ends = sorted((sign * low, sign * (low + width)))
    text = str(Gain(sum(ends) / 2, *ends))
    verb, bleu, _, *shown = text.replace("(", "").replace(")", "").replace("to ", "").split()
    assert verb == ("gained" if sign > 0 else "lost")
    assert all(float(number) > 0 for number in (bleu, *shown))
    assert [float(number) for number in shown] == pytest.approx([low, low + width], rel=0.5, abs=0.05)


@given(own=st.floats(-50, 50), others=st.lists(st.floats(-50, 50), min_size=1, max_size=4), width=st.floats(0, 5))
def test_the_net_gain_is_never_more_than_the_gain_and_less_only_by_significant_losses(own, others, width):
    def around(bleu: float) -> Gain:
        return Gain(bleu, bleu - width, bleu + width)

    gains = {"valid": around(own), **{f"set-{n}": around(bleu) for n, bleu in enumerate(others)}}
    lost = sum(-bleu for bleu in others if bleu + width < 0)
    assert net_gain(gains) == pytest.approx(own - lost)
    assert net_gain({"valid": around(own)}) is None

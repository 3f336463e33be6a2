import os
import signal

import pytest

from dragoman.launch.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_reported_once_and_a_second_means_at_once(number):
    with Interrupts() as interrupts:
        assert not interrupts.first_time
        os.kill(os.getpid(), number)
        assert interrupts.first_time
        assert not interrupts.first_time
        assert not interrupts.leave_at_once
        os.kill(os.getpid(), number)
        assert interrupts.leave_at_once


def test_earlier_signal_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

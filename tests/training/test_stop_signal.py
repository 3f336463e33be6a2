import os
import signal

import pytest

from dragoman.training.stop_signal import EXIT_AT_ONCE, StopSignal


@pytest.fixture
def exits(monkeypatch) -> list[int]:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_requests_a_stop_and_handlers_are_restored(exits, number):
    before = signal.getsignal(number)
    stop = StopSignal()
    with stop.listening():
        signal.raise_signal(number)
    assert stop.requested
    assert exits == []
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_exits_at_once(exits):
    stop = StopSignal()
    with stop.listening():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert exits == []
        signal.raise_signal(signal.SIGINT)
    assert exits == [EXIT_AT_ONCE]


def test_a_repeated_sigterm_does_not_exit_before_saving(exits):
    stop = StopSignal()
    with stop.listening():
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
    assert exits == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(exits, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        stop = StopSignal()
        with stop.listening():
            signal.raise_signal(number)
        assert not stop.requested
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)

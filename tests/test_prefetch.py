import itertools

import pytest

from dragoman.prefetch import Prefetcher


def test_items_come_in_order_and_end():
    assert list(Prefetcher(iter(range(100)), most=3)) == list(range(100))


def test_what_goes_wrong_ahead_is_told_to_the_one_who_waits():
    def broken():
        yield 1
        raise ValueError("disk on fire")

    ahead = Prefetcher(broken(), most=2)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="disk on fire"):
        next(ahead)
    ahead.close()


def test_no_more_than_asked_for_is_made_ahead():
    made = []
    ahead = Prefetcher((made.append(number) or number for number in itertools.count()), most=4)
    next(ahead)
    ahead.close()
    assert len(made) <= 1 + 4 + 1


def test_what_is_no_longer_wanted_ends():
    ahead = Prefetcher(itertools.count(), most=2)
    ahead.close()
    assert not ahead._thread.is_alive()

import itertools
import time

import pytest

from dragoman.prefetch import Prefetcher


def test_items_keep_their_order_and_the_iterator_ends():
    assert list(Prefetcher(iter(range(100)), max_ahead=3)) == list(range(100))


def test_an_exception_in_the_thread_is_raised_in_the_consumer():
    def broken():
        yield 1
        raise ValueError("read failed")

    prefetcher = Prefetcher(broken(), max_ahead=2)
    assert next(prefetcher) == 1
    with pytest.raises(ValueError, match="read failed"):
        next(prefetcher)
    prefetcher.close()


def test_the_number_of_prefetched_items_is_bounded():
    produced = []
    prefetcher = Prefetcher((produced.append(number) or number for number in itertools.count()), max_ahead=4)
    next(prefetcher)
    prefetcher.close()
    assert len(produced) <= 1 + 4 + 1


def test_close_ends_the_thread():
    prefetcher = Prefetcher(itertools.count(), max_ahead=2)
    prefetcher.close()
    assert not prefetcher._thread.is_alive()


def test_close_wakes_a_thread_that_waits_for_room():
    prefetcher = Prefetcher(itertools.count(), max_ahead=1)
    while not prefetcher._ready.full():
        time.sleep(0.001)
    prefetcher.close()
    assert not prefetcher._thread.is_alive()

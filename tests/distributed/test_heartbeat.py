"""Beats between real sockets of this machine."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.distributed.heartbeat import MAX_MESSAGE_BYTES, SILENCE_S, Heartbeat, parse_heartbeat

PATIENCE_S = 30.0


def wait_until(condition: Callable[[], object]) -> None:
    """A slow machine may take its time: what is asserted is that it comes, not when."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@pytest.fixture
def pair() -> Iterator[tuple[Heartbeat, Heartbeat]]:
    """Two workers of a world, who know each other as `one` and `other`."""
    one, other = Heartbeat(), Heartbeat()
    one.join("world", "one", {"other": ("127.0.0.1", other.port)})
    other.join("world", "other", {"one": ("127.0.0.1", one.port)})
    yield one, other
    one.close()
    other.close()


def test_a_peer_hears_what_a_worker_does(pair):
    one, other = pair
    other.activity = "step 41, waiting"
    wait_until(lambda: one.last_activity("other").startswith("step 41, waiting, heard "))
    assert one.missing() == []


def test_long_news_are_cut_so_that_they_fit_into_a_beat(pair):
    one, other = pair
    other.activity = "ü" * 5000
    wait_until(lambda: one.last_activity("other").startswith("ü" * 100))


def test_whoever_falls_silent_is_missing(pair):
    one, other = pair
    wait_until(lambda: "heard" in one.last_activity("other") and one.missing() == [])
    other.close()
    wait_until(one.missing)
    assert one.missing() == ["other"]
    assert float(one.last_activity("other").split("heard ")[1].split(" s")[0]) >= SILENCE_S


def test_whoever_leaves_is_missing_at_once_though_it_still_beats(pair):
    one, other = pair
    other.activity = "looking for another world"
    wait_until(lambda: one.last_activity("other").startswith("looking"))
    other.leave()
    wait_until(one.missing)
    other.activity = "still alive"
    wait_until(lambda: one.last_activity("other").startswith("still alive"))
    assert one.missing() == ["other"]


def test_whoever_leaves_is_not_to_blame_for_a_failure(pair):
    one, other = pair
    other.activity = "about to leave"
    wait_until(lambda: one.last_activity("other").startswith("about to leave"))
    other.leave()
    wait_until(lambda: one.missing() == ["other"] and one.find_lost() == [])


def test_a_process_that_has_ended_is_found_at_once(pair):
    one, other = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ended:
        ended.bind(("127.0.0.1", 0))
        addresses = {"other": ("127.0.0.1", other.port), "ended": ended.getsockname()}
    one.join("world", "one", addresses)
    assert one.find_lost() == ["ended"]
    assert one.missing() == []


def test_a_process_that_ends_after_its_connections_is_found(pair):
    one, other = pair
    ending = threading.Timer(SILENCE_S / 4, other.close)
    ending.start()
    assert one.find_lost() == ["other"]
    ending.join()


def test_a_peer_that_has_not_come_to_a_new_world_yet_is_not_missing(pair):
    one, other = pair
    one.join("next world", "one", {"other": ("127.0.0.1", other.port)})
    other.activity = "still in the last world"
    wait_until(lambda: one.last_activity("other").startswith("still in the last world"))
    assert one.missing() == []


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff" * 2000, b"[1, 2, 3]", b'["one", "world"]', json.dumps(["a stranger", "world", "step 1"]).encode()],
)
def test_what_strangers_send_disturbs_nobody(pair, garbage):
    one, other = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(20):
            stranger.sendto(garbage, ("127.0.0.1", one.port))
    other.activity = "after the garbage"
    wait_until(lambda: one.last_activity("other").startswith("after the garbage"))
    assert one.missing() == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary(max_size=MAX_MESSAGE_BYTES) | json_values.map(lambda value: json.dumps(value).encode()))
@example(b"[" * MAX_MESSAGE_BYTES)
@example(b"9" * MAX_MESSAGE_BYTES)
@example(b'["\\ud800", "", ""]')
@example(b"\xff\xfe[\x00")
def test_a_message_is_a_beat_or_nothing(message):
    beat = parse_heartbeat(message)
    assert beat is None or (len(beat) == 3 and all(isinstance(part, str) for part in beat))


@given(st.tuples(st.text(), st.text(), st.text()))
def test_a_beat_is_read_as_it_was_meant(beat):
    assert parse_heartbeat(json.dumps(beat).encode()) == beat

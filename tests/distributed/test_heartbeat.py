import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.distributed.heartbeat import FIND_LOST_S, MAX_MESSAGE_BYTES, SILENCE_S, Heartbeat, parse_heartbeat

TIMEOUT_S = 30.0


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition, for long enough on a slow machine."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met"
        time.sleep(0.02)


@pytest.fixture
def pair() -> Iterator[tuple[Heartbeat, Heartbeat]]:
    """Two workers of a world, named `one` and `other`."""
    one, other = Heartbeat(), Heartbeat()
    one.join("world", "one", {"other": ("127.0.0.1", other.port)})
    other.join("world", "other", {"one": ("127.0.0.1", one.port)})
    yield one, other
    one.close()
    other.close()


def test_a_peer_receives_the_activity_of_a_worker(pair):
    one, other = pair
    other.activity = "step 41, waiting"
    wait_until(lambda: one.last_activity("other").startswith("step 41, waiting, heard "))
    assert one.missing() == []


def test_a_long_activity_is_truncated_to_fit_into_a_message(pair):
    one, other = pair
    other.activity = "ü" * 5000
    wait_until(lambda: one.last_activity("other").startswith("ü" * 100))


def test_a_silent_worker_is_missing(pair):
    one, other = pair
    wait_until(lambda: "heard" in one.last_activity("other") and one.missing() == [])
    other.close()
    wait_until(one.missing)
    assert one.missing() == ["other"]
    assert float(one.last_activity("other").split("heard ")[1].split(" s")[0]) >= SILENCE_S


def test_a_worker_that_leaves_is_missing_although_it_sends_heartbeats(pair):
    one, other = pair
    other.activity = "leaving"
    wait_until(lambda: one.last_activity("other").startswith("leaving"))
    other.leave()
    wait_until(one.missing)
    other.activity = "still alive"
    wait_until(lambda: one.last_activity("other").startswith("still alive"))
    assert one.missing() == ["other"]


def test_a_worker_that_leaves_is_not_the_cause_of_a_failure(pair):
    one, other = pair
    other.activity = "about to leave"
    wait_until(lambda: one.last_activity("other").startswith("about to leave"))
    other.leave()
    wait_until(lambda: one.missing() == ["other"] and one.find_lost() == [])


def test_a_process_that_has_ended_is_found(pair):
    one, other = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ended:
        ended.bind(("127.0.0.1", 0))
        addresses = {"other": ("127.0.0.1", other.port), "ended": ended.getsockname()}
    one.join("world", "one", addresses)
    assert one.find_lost() == ["ended"]
    assert one.missing() == []


def test_a_process_that_ends_after_its_connections_is_found(pair):
    one, other = pair
    ending = threading.Timer(FIND_LOST_S / 2, other.close)
    ending.start()
    assert one.find_lost() == ["other"]
    ending.join()


def test_a_peer_that_has_not_joined_a_new_world_yet_is_not_missing(pair):
    one, other = pair
    one.join("next world", "one", {"other": ("127.0.0.1", other.port)})
    other.activity = "still in the last world"
    wait_until(lambda: one.last_activity("other").startswith("still in the last world"))
    assert one.missing() == []


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff" * 2000, b"[1, 2, 3]", b'["one", "world"]', json.dumps(["unknown", "world", "step 1"]).encode()],
)
def test_malformed_and_unknown_messages_are_ignored(pair, garbage):
    one, other = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(20):
            sender.sendto(garbage, ("127.0.0.1", one.port))
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
def test_a_message_is_parsed_or_rejected(message):
    heartbeat = parse_heartbeat(message)
    assert heartbeat is None or (len(heartbeat) == 3 and all(isinstance(part, str) for part in heartbeat))


@given(st.tuples(st.text(), st.text(), st.text()))
def test_a_heartbeat_is_parsed_into_its_parts(heartbeat):
    assert parse_heartbeat(json.dumps(heartbeat).encode()) == heartbeat

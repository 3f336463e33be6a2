import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.distributed import heartbeat as heartbeat_module
from dragoman.distributed.heartbeat import (
    FIND_LOST_S,
    MAX_MESSAGE_BYTES,
    Heartbeat,
    HeartbeatMessage,
    decode_heartbeat,
    encode_heartbeat,
)

TIMEOUT_S = 30.0
SILENCE_S = 1.5
SECRET = "secret of the launch"


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition, for long enough on a slow machine."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met"
        time.sleep(0.02)


@pytest.fixture
def pair() -> Iterator[tuple[Heartbeat, Heartbeat]]:
    """Two workers of a world, named `one` and `other`."""
    one, other = Heartbeat(SILENCE_S), Heartbeat(SILENCE_S)
    for heartbeat in (one, other):
        heartbeat.listen("127.0.0.1", SECRET)
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


def test_a_peer_that_has_not_arrived_at_a_synchronisation_is_late(pair):
    one, other = pair
    assert one.late() == one.awaited() == []
    one.arrive()
    assert one.late() == one.awaited() == ["other"]
    wait_until(lambda: other.late() == [] and other._peers["one"].arrivals == 1)
    other.arrive()
    wait_until(lambda: one.late() == one.awaited() == [])
    assert not one.gave_up


def test_a_worker_does_not_wait_for_peers_where_it_has_not_arrived_itself(pair):
    one, other = pair
    other.arrive()
    wait_until(lambda: one._peers["other"].arrivals == 1)
    assert one.awaited() == []
    one.arrive()
    other.arrive()
    wait_until(lambda: one._peers["other"].arrivals == 2)
    assert one.awaited() == []


def test_a_worker_that_others_no_longer_wait_for_is_left_behind_until_it_leaves(pair):
    one, other = pair
    wait_until(lambda: other._peers["one"].joined)
    one.arrive()
    one.give_up()
    one.leave()
    wait_until(lambda: other.left_behind)
    other.arrive()
    assert (other.late(), other.gave_up, other.missing()) == (["other"], True, ["one"])
    other.leave()
    assert not other.left_behind
    other.join("next world", "other", {})
    assert (other.late(), other.gave_up) == ([], False)


def test_a_worker_that_arrives_before_others_give_up_is_not_left_behind(pair):
    one, other = pair
    wait_until(lambda: other._peers["one"].joined)
    other.arrive()
    one.arrive()
    one.give_up()
    wait_until(lambda: other.gave_up)
    assert not other.left_behind
    assert other.missing() == ["one"]


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


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes datagrams and never answers, like a machine that was lost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


def test_a_peer_has_longer_for_its_first_heartbeat_than_for_the_next(silent_port):
    waiting = Heartbeat(silence_s=0.1)
    waiting.join("world", "one", {"connecting": ("127.0.0.1", silent_port)})
    time.sleep(0.2)
    assert waiting.missing() == []
    assert waiting.find_lost() == []


def test_a_peer_without_a_first_heartbeat_is_missing_in_the_end(silent_port, monkeypatch):
    monkeypatch.setattr(heartbeat_module, "JOIN_S", 0.2)
    waiting = Heartbeat(silence_s=0.1)
    waiting.join("world", "one", {"lost": ("127.0.0.1", silent_port)})
    wait_until(waiting.missing)
    assert waiting.missing() == waiting.find_lost() == ["lost"]


def send(target: Heartbeat, *messages: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for message in messages:
            sender.sendto(message, ("127.0.0.1", target.port))


FAREWELL = HeartbeatMessage(10**9, "other", "", "a stranger")
"""Would make the peer appear to have left the world."""


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 2000,
        b"[1, 2, 3]",
        json.dumps(FAREWELL).encode(),
        encode_heartbeat("another secret", FAREWELL),
        encode_heartbeat(SECRET, FAREWELL)[:-1],
        encode_heartbeat(SECRET, FAREWELL)[1:],
    ],
)
def test_messages_without_the_secret_are_dropped_and_counted(pair, garbage):
    one, other = pair
    send(one, *[garbage] * 20)
    other.activity = "after the garbage"
    wait_until(lambda: one.last_activity("other").startswith("after the garbage"))
    assert one.missing() == []
    wait_until(lambda: one.rejections._sources.total() == 20)
    summary = one.rejections.take()
    assert (summary.count, summary.sources) == (20, ("127.0.0.1",))


def test_a_replayed_message_is_dropped(pair):
    one, other = pair
    replayed = encode_heartbeat(SECRET, HeartbeatMessage(1, "other", "", "replayed"))
    other.activity = "present"
    wait_until(lambda: one.last_activity("other").startswith("present"))
    send(one, *[replayed] * 20)
    wait_until(lambda: one.rejections._sources.total() == 20)
    assert one.last_activity("other").startswith("present")
    assert one.missing() == []


def test_a_probe_for_an_open_port_is_not_a_stranger(pair):
    one, other = pair
    assert other.find_lost() == []
    other.activity = "after the probe"
    wait_until(lambda: one.last_activity("other").startswith("after the probe"))
    assert one.rejections.take() is None


def test_no_port_is_open_before_a_worker_listens():
    assert Heartbeat(SILENCE_S).port == 0


def test_heartbeats_use_the_given_address_only(pair):
    one, _ = pair
    assert one._socket.getsockname()[0] == "127.0.0.1"


@given(st.binary(max_size=MAX_MESSAGE_BYTES))
@example(b"")
def test_a_message_without_a_signature_is_nothing(message):
    assert decode_heartbeat(SECRET, message) is None


@given(
    st.builds(
        HeartbeatMessage,
        st.integers(),
        *[st.text(st.characters(exclude_categories=["Cs"]))] * 3,
        st.integers(),
        st.booleans(),
    )
)
def test_a_signed_message_is_decoded_into_its_parts(message):
    assert decode_heartbeat(SECRET, encode_heartbeat(SECRET, message)) == message

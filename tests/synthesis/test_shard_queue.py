"""Leases of shards, whatever becomes of the workers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dragoman.synthesis.shard_queue import ShardQueue
from dragoman.synthesis.text_shards import TextShard

WORKERS = ["a", "b", "c"]
ACTIONS = st.lists(st.tuples(st.sampled_from(WORKERS), st.sampled_from(["take", "finish", "lose"])), max_size=200)


def shards(count: int) -> list[TextShard]:
    return [TextShard(number, number * 10, ("line",)) for number in range(count)]


@given(ACTIONS, st.integers(0, 12))
def test_every_shard_is_finished_exactly_once_whoever_is_lost(actions: list[tuple[str, str]], count: int) -> None:
    queue = ShardQueue(iter(shards(count)))
    held: dict[str, list[int]] = {worker: [] for worker in WORKERS}
    finished: Counter[int] = Counter()

    def act(worker: str, action: str) -> None:
        if action == "take" and len(held[worker]) < 2:
            shard = queue.take(worker)
            if shard is not None:
                assert shard.number not in held[worker]
                held[worker].append(shard.number)
        elif action == "finish" and held[worker]:
            number = held[worker].pop(0)
            finished[number] += queue.finish(number)
        elif action == "lose":
            queue.release(worker)
            held[worker] = []

    for worker, action in actions:
        act(worker, action)
        assert len(queue._leases) <= 2 * len(WORKERS)  # Memory is bounded by the workers, not by the text.
    for lost in WORKERS[1:]:
        act(lost, "lose")
    while not queue.is_done:  # One worker that is left finishes all.
        act("a", "take")
        act("a", "finish")
    assert finished == Counter(dict.fromkeys(range(count), 1))


def test_an_idle_worker_takes_the_oldest_shard_of_another_one_when_no_new_one_is_left() -> None:
    queue = ShardQueue(iter(shards(2)))
    assert [queue.take("slow").number, queue.take("slow").number] == [0, 1]
    assert [queue.take("fast").number, queue.take("fast").number] == [0, 1]
    assert queue.take("fast") is None
    assert queue.finish(0)
    assert not queue.finish(0)
    assert not queue.is_open(0)

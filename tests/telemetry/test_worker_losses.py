from collections.abc import Sequence

from dragoman.events import Event, WorkersLost, WorldChanged
from dragoman.telemetry.worker_losses import LossTracker

ALL = ["worker 0 on a", "worker 1 on b", "worker 2 on c"]


def world(worker: int, workers: Sequence[str]) -> WorldChanged:
    return WorldChanged(worker=worker, step=5, workers=list(workers))


def loss(worker: int, *lost: str, reason: str = "no heartbeat") -> WorkersLost:
    return WorkersLost(worker=worker, step=5, workers=list(lost), reason=reason)


def losses(*recorded: Event) -> list[list[str]]:
    tracker = LossTracker()
    found = [tracker.add(event) for event in (world(0, ALL), *recorded)]
    return [event.workers for event in found if event is not None]


def test_a_loss_that_all_survivors_report_counts_once():
    lost = "worker 0 on a (step 5, waiting)"
    assert losses(loss(1, lost), loss(2, lost), world(1, ALL[1:]), world(2, ALL[1:])) == [[lost]]


def test_the_next_world_names_those_behind_a_broken_connection():
    assert losses(loss(1), loss(2), world(1, ALL[1:])) == [["worker 0 on a"]]


def test_a_worker_that_exits_because_of_a_loss_is_not_lost():
    assert losses(loss(0, "worker 2 on c"), loss(1, "worker 0 on a", "worker 2 on c")) == [["worker 2 on c"]]


def test_a_worker_that_reported_a_loss_and_is_gone_was_lost_too():
    assert losses(loss(0, "worker 2 on c"), loss(1, "worker 0 on a"), world(1, ALL[1:2])) == [
        ["worker 2 on c"],
        ["worker 0 on a"],
    ]


def test_a_worker_that_came_back_can_be_lost_again():
    assert losses(loss(1, ALL[0]), world(1, ALL[1:]), world(1, ALL), loss(1, ALL[0])) == [[ALL[0]], [ALL[0]]]


def test_a_late_report_of_a_known_loss_is_forgotten():
    late = (loss(2), world(2, ALL[1:]))
    assert losses(loss(1, ALL[0]), world(1, ALL[1:]), *late, world(1, ALL[1:2])) == [[ALL[0]]]


def test_a_loss_that_nobody_explains_is_kept():
    tracker = LossTracker()
    tracker.add(world(0, ALL))
    assert tracker.unexplained is None
    unexplained = loss(1)
    tracker.add(unexplained)
    assert tracker.unexplained is unexplained

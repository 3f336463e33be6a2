"""The judges of the benchmark of several hosts, with planted faults: each figure must be able to fail."""

from dataclasses import asdict
from itertools import islice

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from benchmarks.run_judges import PlannedBatch, StepFaults, judge_steps, planned_batches, steps_until_followed

from dragoman.events import SharesChanged, StepDone

from ..insight.synthetic_runs import synthetic_run

NO_FAULTS = StepFaults(lost_steps=0, unplanned_steps=0, lost_pairs=0, repeated_pairs=0)
PLAN = [PlannedBatch(epoch, batch, pairs=10 * epoch + batch + 1) for epoch in range(2) for batch in range(6)]
TEMPLATE = next(event for event in synthetic_run(1) if isinstance(event, StepDone))


def step(number: int, planned: PlannedBatch) -> StepDone:
    return StepDone(**{**asdict(TEMPLATE), "step": number, **asdict(planned)})


def steps(batches: list[PlannedBatch]) -> list[StepDone]:
    return [step(number, planned) for number, planned in enumerate(batches, 1)]


def test_a_run_that_follows_the_plan_has_no_faults():
    assert judge_steps(steps(PLAN), PLAN) == NO_FAULTS


def test_steps_of_several_workers_and_steps_done_again_after_a_restart_are_no_faults():
    first, second = steps(PLAN[:8]), steps(PLAN)[2:]
    assert judge_steps([*first, *second, *second[3:]], PLAN) == NO_FAULTS


def test_a_skipped_batch_is_seen():
    faults = judge_steps(steps([*PLAN[:4], *PLAN[5:]]), PLAN[:11])
    assert faults.lost_pairs == PLAN[4].pairs
    assert faults.unplanned_steps == 7
    assert faults.lost_steps == faults.repeated_pairs == 0


def test_a_batch_skipped_at_the_end_of_an_epoch_is_seen():
    assert judge_steps(steps([*PLAN[:5], *PLAN[6:]]), PLAN[:11]).lost_pairs == PLAN[5].pairs


def test_a_doubled_batch_is_seen():
    faults = judge_steps(steps([*PLAN[:5], PLAN[4], *PLAN[5:]]), [*PLAN, PlannedBatch(2, 0, 9)])
    assert faults.repeated_pairs == PLAN[4].pairs
    assert faults.lost_pairs == 9
    assert faults.unplanned_steps == 8


def test_batches_in_another_order_are_seen():
    faults = judge_steps(steps([PLAN[1], PLAN[0], *PLAN[2:]]), PLAN)
    assert faults == StepFaults(lost_steps=0, unplanned_steps=2, lost_pairs=0, repeated_pairs=0)


def test_a_lost_step_is_seen():
    done = steps(PLAN)
    faults = judge_steps(done[:6] + done[7:], PLAN)
    assert faults == StepFaults(lost_steps=1, unplanned_steps=0, lost_pairs=PLAN[6].pairs, repeated_pairs=0)


def test_a_worker_that_trains_on_another_batch_is_seen():
    faults = judge_steps([*steps(PLAN), step(3, PLAN[3])], PLAN)
    assert faults == StepFaults(lost_steps=0, unplanned_steps=1, lost_pairs=0, repeated_pairs=PLAN[3].pairs)


def test_a_batch_with_fewer_pairs_than_planned_is_seen():
    done = steps(PLAN)
    done[3] = step(4, PlannedBatch(PLAN[3].epoch, PLAN[3].batch, PLAN[3].pairs - 1))
    assert judge_steps(done, PLAN).unplanned_steps == 1


@hypothesis.given(st.lists(st.sampled_from(PLAN), min_size=len(PLAN), max_size=len(PLAN)))
def test_only_the_plan_itself_has_no_faults(batches):
    assert (judge_steps(steps(batches), PLAN) == NO_FAULTS) == (batches == PLAN)


def test_planned_batches_go_on_after_an_epoch():
    lengths = np.full((30, 2), 10, np.int32)
    plan = list(islice(planned_batches(lengths, tokens=100, seed=1), 7))
    assert [(planned.epoch, planned.batch) for planned in plan] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]
    assert {planned.pairs for planned in plan} == {10}


def shares(*changes: tuple[int, float]) -> list[SharesChanged]:
    return [SharesChanged(at_s=0.0, step=number, shares=[1 - share, share]) for number, share in changes]


def test_shares_that_follow_are_counted_from_the_slowdown():
    changes = shares((10, 0.49), (55, 0.4), (60, 0.26), (70, 0.25))
    assert steps_until_followed(changes, slowed_at=50, rank=1, deserved=0.25) == (10, 0.25)


@pytest.mark.parametrize("changes", [(), ((10, 0.5),)], ids=["no change", "changes only before"])
def test_shares_that_never_change_never_follow(changes):
    assert steps_until_followed(shares(*changes), slowed_at=50, rank=1, deserved=0.25) == (None, None)


@pytest.mark.parametrize("final", [0.48, 0.35, 0.1])
def test_shares_that_settle_elsewhere_never_follow(final):
    changes = shares((60, final), (70, final))
    assert steps_until_followed(changes, slowed_at=50, rank=1, deserved=0.25) == (None, final)


def test_shares_that_follow_and_return_never_follow():
    changes = shares((60, 0.25), (80, 0.5))
    assert steps_until_followed(changes, slowed_at=50, rank=1, deserved=0.25) == (None, 0.5)

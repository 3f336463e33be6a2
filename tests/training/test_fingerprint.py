from dataclasses import replace

import pytest

from dragoman.corpus.evaluation_set import EvaluationSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import WorkersLostError
from dragoman.errors import DragomanError
from dragoman.training.fingerprint import Fingerprint, refuse_mismatched, require_equal

from ..distributed.thread_workers import ThreadWorkers
from ..small import tiny


def refusals(check, *fingerprints: Fingerprint) -> list[Exception | None]:
    """What each worker raises, by rank."""

    def work(cluster: Cluster) -> Exception | None:
        try:
            check(cluster, fingerprints[cluster.rank])
        except (DragomanError, WorkersLostError) as error:
            return error
        return None

    with ThreadWorkers(*"abcd"[: len(fingerprints)]) as workers:
        return workers(work)


@pytest.fixture(scope="module")
def fingerprint(data) -> Fingerprint:
    return Fingerprint.of(tiny(), data)


def test_workers_with_equal_data_settings_and_code_train(fingerprint):
    assert refusals(require_equal, fingerprint, fingerprint) == [None, None]


def test_every_worker_of_a_static_world_is_refused_with_the_difference_and_the_workers(data, fingerprint):
    other_settings = Fingerprint.of(tiny("batch.tokens=400", "training.seed=7"), data)
    other_data = replace(fingerprint, data="0123456789abcdef")
    errors = refusals(require_equal, fingerprint, other_settings, fingerprint, other_data)
    assert len({str(error) for error in errors}) == 1
    assert all(isinstance(error, DragomanError) for error in errors)
    first, second, last = str(errors[0]).splitlines()
    assert first == "Worker 1 on b does not match worker 0 on a: batch.tokens = 400, not 200; training.seed = 7, not 1."
    assert second.strip() == (
        f"Worker 3 on d does not match worker 0 on a: data set 0123456789ab, not {fingerprint.data[:12]}."
    )
    assert last.strip() == "Start all workers with the same data set, settings and version of Dragoman."


def test_other_evaluation_sets_are_named(data, old_data, fingerprint):
    sets = [replace(EvaluationSet.validation(each), name="news") for each in (data, old_data)]
    first, second = (Fingerprint.of(tiny(), data, other_sets=[each]) for each in sets)
    identities = [each.identity[:12] for each in sets]
    assert first.differences(second) == [f"--also-evaluate news ({identities[0]}), not news ({identities[1]})"]
    assert first.differences(fingerprint) == [f"--also-evaluate news ({identities[0]}), not of no set"]
    assert refusals(require_equal, first, first) == [None, None]


def test_other_code_is_named_instead_of_its_settings(fingerprint):
    newer = replace(fingerprint, dragoman="9.9 (abcd1234)", settings={"batch.words": 3})
    assert newer.differences(fingerprint) == [f"Dragoman 9.9 (abcd1234), not {fingerprint.dragoman}"]


@pytest.mark.parametrize(
    "override",
    [
        "training.micro_batch_tokens=64",
        "checkpoint.keep_last=9",
        "money.price_per_hour=[2]",
        "tokenizer.sample_pairs=5",
        "augmentation.upper_case=0.5",
    ],
)
def test_settings_of_one_machine_or_of_the_preparation_may_differ(data, fingerprint, override):
    assert Fingerprint.of(tiny(override), data).differences(fingerprint) == []


@pytest.mark.parametrize(("steps", "refused"), [([12, 12, 12], 0), ([40, 12, 12], 1)])
def test_an_elastic_world_refuses_the_minority_unless_it_is_ahead(fingerprint, steps, refused):
    other = replace(fingerprint, data="0123456789abcdef")
    errors = refusals(
        lambda cluster, own: refuse_mismatched(cluster, own, steps[cluster.rank]), other, fingerprint, fingerprint
    )
    ranks = [0] if refused == 0 else [1, 2]
    for rank, error in enumerate(errors):
        if rank in ranks:
            assert isinstance(error, DragomanError)
            assert str(error).startswith(f"Worker {rank} on {'abc'[rank]} does not match worker {1 - refused}")
        else:
            assert isinstance(error, WorkersLostError)
            assert [member.worker for member, _ in error.missing] == ranks
            assert "data set" in str(error)

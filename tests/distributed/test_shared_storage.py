"""Who shares a disk and who writes checkpoints, found out by real groups with real folders."""

import pytest

from dragoman.distributed.shared_storage import choose_checkpoint_writers, find_shared_storage

from .thread_workers import ThreadWorkers


def found_by(workers, folder_of):
    """Disks and keepers, which all workers find alike."""
    found = workers(lambda cluster: find_shared_storage(cluster, folder_of(cluster.host)))
    assert all(disks == found[0] for disks in found)
    return found[0], set(choose_checkpoint_writers(found[0], workers.clusters[0].members))


@pytest.mark.parametrize(
    ("hosts", "disks", "keepers"),
    [
        (("a",), [0], {0}),
        (("a", "a"), [0, 0], {0}),
        (("a", "b"), [0, 1], {0, 1}),
        (("a", "a", "b", "b"), [0, 0, 2, 2], {0, 2}),
        (("a", "b", "c"), [0, 1, 2], {0, 1}),
    ],
)
def test_machines_with_folders_of_their_own_have_a_keeper_on_two_of_them(tmp_path, hosts, disks, keepers):
    with ThreadWorkers(*hosts) as workers:
        assert found_by(workers, lambda host: tmp_path / host / "checkpoints") == (disks, keepers)


def test_machines_that_share_a_folder_have_one_keeper(tmp_path):
    with ThreadWorkers("a", "b", "c") as workers:
        assert found_by(workers, lambda host: tmp_path / "checkpoints") == ([0, 0, 0], {0})


def test_a_machine_that_shares_the_folder_is_passed_over_for_one_that_does_not(tmp_path):
    folders = {"a": tmp_path / "shared", "b": tmp_path / "shared", "c": tmp_path / "own"}
    with ThreadWorkers("a", "b", "c") as workers:
        assert found_by(workers, folders.__getitem__) == ([0, 0, 2], {0, 2})


def test_a_machine_that_cannot_write_has_a_disk_of_its_own(tmp_path):
    (tmp_path / "b").write_text("no folder can be made here")
    with ThreadWorkers("a", "b") as workers:
        assert found_by(workers, lambda host: tmp_path / host / "checkpoints")[0] == [0, 1]


def test_looking_leaves_nothing_behind(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        found_by(workers, lambda host: tmp_path / host)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

import pytest

from dragoman.distributed.shared_storage import choose_checkpoint_writers, find_shared_storage

from .thread_workers import ThreadWorkers


def found_by(workers, folder_of):
    """The shared storage and the checkpoint writers. All workers must find the same."""
    found = workers(lambda cluster: find_shared_storage(cluster, folder_of(cluster.host)))
    assert all(storage == found[0] for storage in found)
    return found[0], set(choose_checkpoint_writers(found[0], workers.clusters[0].members))


@pytest.mark.parametrize(
    ("hosts", "storage", "writers"),
    [
        (("a",), [0], {0}),
        (("a", "a"), [0, 0], {0}),
        (("a", "b"), [0, 1], {0, 1}),
        (("a", "a", "b", "b"), [0, 0, 2, 2], {0, 2}),
        (("a", "b", "c"), [0, 1, 2], {0, 1}),
    ],
)
def test_two_machines_without_shared_storage_write_checkpoints(tmp_path, hosts, storage, writers):
    with ThreadWorkers(*hosts) as workers:
        assert found_by(workers, lambda host: tmp_path / host / "checkpoints") == (storage, writers)


def test_one_of_the_machines_with_shared_storage_writes_checkpoints(tmp_path):
    with ThreadWorkers("a", "b", "c") as workers:
        assert found_by(workers, lambda host: tmp_path / "checkpoints") == ([0, 0, 0], {0})


def test_the_second_writer_is_a_machine_with_storage_of_its_own(tmp_path):
    folders = {"a": tmp_path / "shared", "b": tmp_path / "shared", "c": tmp_path / "own"}
    with ThreadWorkers("a", "b", "c") as workers:
        assert found_by(workers, folders.__getitem__) == ([0, 0, 2], {0, 2})


def test_a_machine_that_cannot_write_counts_as_not_sharing(tmp_path):
    (tmp_path / "b").write_text("a file instead of a folder")
    with ThreadWorkers("a", "b") as workers:
        assert found_by(workers, lambda host: tmp_path / host / "checkpoints")[0] == [0, 1]


def test_no_marker_files_remain(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        found_by(workers, lambda host: tmp_path / host)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

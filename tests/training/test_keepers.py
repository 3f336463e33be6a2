"""Who writes checkpoints, found out by real groups with real folders."""

import pytest

from dragoman.training.keepers import find_keepers

from .crew import Crew


@pytest.mark.parametrize(
    ("hosts", "keepers"),
    [
        (("a",), {0}),
        (("a", "a"), {0}),
        (("a", "b"), {0, 1}),
        (("a", "a", "b", "b"), {0, 2}),
        (("a", "b", "c"), {0, 1}),
    ],
)
def test_machines_with_folders_of_their_own_have_a_keeper_on_two_of_them(tmp_path, hosts, keepers):
    with Crew(*hosts) as crew:
        found = crew(lambda cluster: find_keepers(cluster, tmp_path / cluster.host / "checkpoints"))
    assert found == [keepers] * len(hosts)


def test_machines_that_share_a_folder_have_one_keeper(tmp_path):
    with Crew("a", "b", "c") as crew:
        found = crew(lambda cluster: find_keepers(cluster, tmp_path / "checkpoints"))
    assert found == [{0}] * 3


def test_a_machine_that_shares_the_folder_is_passed_over_for_one_that_does_not(tmp_path):
    folders = {"a": tmp_path / "shared", "b": tmp_path / "shared", "c": tmp_path / "own"}
    with Crew("a", "b", "c") as crew:
        found = crew(lambda cluster: find_keepers(cluster, folders[cluster.host]))
    assert found == [{0, 2}] * 3


def test_looking_leaves_nothing_behind(tmp_path):
    with Crew("a", "b") as crew:
        crew(lambda cluster: find_keepers(cluster, tmp_path / cluster.host))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

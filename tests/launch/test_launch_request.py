from pathlib import Path

from dragoman.distributed import cluster
from dragoman.launch import launch_request
from dragoman.launch.launch_request import HostPlacement, LaunchRequest, working_folder
from dragoman.launch.ssh import Machine
from dragoman.recipe import resolve

PLACEMENT = HostPlacement({"a": 1, "b": 2}, {"a": ("eth0", "198.51.100.1"), "b": ("ens3", "198.51.100.2")}, newest=None)


def test_ranks_follow_the_hosts_and_all_workers_meet_at_the_first():
    by_host = PLACEMENT.places(29500)
    assert list(by_host) == ["a", "b"]
    places = [place for host in by_host.values() for place in host]
    assert [(place["RANK"], place["LOCAL_RANK"], place["LOCAL_WORLD_SIZE"]) for place in places] == [
        ("0", "0", "1"),
        ("1", "0", "2"),
        ("2", "1", "2"),
    ]
    assert {(place["WORLD_SIZE"], place["MASTER_ADDR"], place["MASTER_PORT"]) for place in places} == {
        ("3", "198.51.100.1", "29500")
    }
    assert [place["GLOO_SOCKET_IFNAME"] for place in places] == ["eth0", "ens3", "ens3"]
    assert [place["DRAGOMAN_HOST"] for place in places] == ["a", "b", "b"]


def test_a_single_host_uses_the_loopback_interface():
    (place,) = HostPlacement({"a": 1}, {}, newest=None).places(1)["a"]
    assert (place["MASTER_ADDR"], place["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")


def test_workers_are_labelled_by_host_and_by_rank_where_a_host_has_several():
    assert PLACEMENT.labels() == {0: "a", 1: "b rank 1", 2: "b rank 2"}
    assert PLACEMENT.hosts_by_rank() == {0: "a", 1: "b", 2: "b"}


def test_every_worker_gets_the_same_arguments():
    request = LaunchRequest(
        [Machine("b"), Machine("a")],
        "tiny",
        Path("data"),
        Path("run"),
        ["training.steps=3"],
        resolve("tiny", []).settings,
    )
    assert request.arguments == ["train", "tiny", "--data", "data", "--out", "run", "training.steps=3"]
    assert request.hosts == ["b", "a"]
    assert request.first == "b"


def test_a_folder_below_the_home_is_relative_to_it(tmp_path, monkeypatch):
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert working_folder() == "~/work"
    monkeypatch.chdir(tmp_path)
    assert working_folder() == str(tmp_path)


def test_workers_read_the_variables_that_the_launcher_sets():
    assert launch_request.HOST == cluster.HOST
    assert launch_request.LIGHTHOUSES == cluster.LIGHTHOUSES

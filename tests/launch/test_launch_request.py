from pathlib import Path

from dragoman.launch.launch_request import HostPlacement, LaunchRequest, home_folder
from dragoman.launch.ssh import Machine
from dragoman.recipe import resolve

MUSTER = HostPlacement({"a": 1, "b": 2}, {"a": ("eth0", "198.51.100.1"), "b": ("ens3", "198.51.100.2")}, newest=None)


def test_ranks_follow_the_hosts_and_all_meet_at_the_first():
    worlds = MUSTER.worlds(29500)
    assert list(worlds) == ["a", "b"]
    places = [place for host in worlds.values() for place in host]
    assert [place["RANK"] for place in places] == ["0", "1", "2"]
    assert [place["LOCAL_RANK"] for place in places] == ["0", "0", "1"]
    assert [place["LOCAL_WORLD_SIZE"] for place in places] == ["1", "2", "2"]
    assert {(place["WORLD_SIZE"], place["MASTER_ADDR"], place["MASTER_PORT"]) for place in places} == {
        ("3", "198.51.100.1", "29500")
    }
    assert [place["GLOO_SOCKET_IFNAME"] for place in places] == ["eth0", "ens3", "ens3"]


def test_a_host_alone_meets_itself():
    (place,) = HostPlacement({"a": 1}, {}, newest=None).worlds(1)["a"]
    assert (place["MASTER_ADDR"], place["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")


def test_workers_are_called_by_their_host_and_by_their_rank_where_there_are_several():
    assert MUSTER.labels() == {0: "a", 1: "b rank 1", 2: "b rank 2"}


def test_every_worker_is_told_the_same_words():
    machines = [Machine("b"), Machine("a")]
    order = LaunchRequest(
        machines, "tiny", Path("data"), Path("run"), ["training.steps=3"], resolve("tiny", []).settings
    )
    assert order.words == ["train", "tiny", "--data", "data", "--out", "run", "training.steps=3"]
    assert order.first == "b"


def test_a_folder_at_home_is_found_on_machines_whose_homes_lie_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert home_folder() == "~/work"
    monkeypatch.chdir(tmp_path)
    assert home_folder() == str(tmp_path)

from dragoman.distributed import cluster
from dragoman.launch import launch_request
from dragoman.launch.launch_request import HostPlacement


def test_every_worker_gets_its_place_in_one_world():
    muster = HostPlacement({"a": 1, "b": 2}, {"a": ("eth0", "10.0.0.1"), "b": ("eth1", "10.0.0.2")}, None)
    worlds = muster.worlds(4000)
    places = [place for host in worlds.values() for place in host]
    assert [(place["RANK"], place["LOCAL_RANK"], place["LOCAL_WORLD_SIZE"]) for place in places] == [
        ("0", "0", "1"),
        ("1", "0", "2"),
        ("2", "1", "2"),
    ]
    assert {(place["WORLD_SIZE"], place["MASTER_ADDR"], place["MASTER_PORT"]) for place in places} == {
        ("3", "10.0.0.1", "4000")
    }
    assert [place["GLOO_SOCKET_IFNAME"] for place in places] == ["eth0", "eth1", "eth1"]
    assert [place["DRAGOMAN_HOST"] for place in places] == ["a", "b", "b"]


def test_one_host_alone_meets_itself():
    [[place]] = HostPlacement({"a": 1}, {}, None).worlds(4000).values()
    assert place["MASTER_ADDR"] == "127.0.0.1"
    assert place["GLOO_SOCKET_IFNAME"] == "lo"


def test_workers_are_told_by_the_names_that_they_know():
    assert launch_request.HOST == cluster.HOST
    assert launch_request.LIGHTHOUSES == cluster.LIGHTHOUSES

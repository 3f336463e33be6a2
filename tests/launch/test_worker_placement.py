from dragoman.launch.worker_placement import WorkerPlacement

PLACEMENT = WorkerPlacement(
    {"a": 1, "b": 2}, {"a": ("eth0", "198.51.100.1"), "b": ("ens3", "198.51.100.2")}, newest=None
)


def test_ranks_follow_the_hosts_and_all_workers_meet_at_the_first():
    by_host = PLACEMENT.environments(29500)
    assert list(by_host) == ["a", "b"]
    environments = [environment for host in by_host.values() for environment in host]
    assert [
        (environment["RANK"], environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"])
        for environment in environments
    ] == [
        ("0", "0", "1"),
        ("1", "0", "2"),
        ("2", "1", "2"),
    ]
    assert {
        (environment["WORLD_SIZE"], environment["MASTER_ADDR"], environment["MASTER_PORT"])
        for environment in environments
    } == {("3", "198.51.100.1", "29500")}
    assert [environment["GLOO_SOCKET_IFNAME"] for environment in environments] == ["eth0", "ens3", "ens3"]
    assert [environment["DRAGOMAN_HOST"] for environment in environments] == ["a", "b", "b"]
    assert [environment["DRAGOMAN_ADDRESS"] for environment in environments] == ["198.51.100.1", *["198.51.100.2"] * 2]


def test_a_single_host_uses_the_loopback_interface():
    (environment,) = WorkerPlacement({"a": 1}, {}, newest=None).environments(1)["a"]
    assert (environment["MASTER_ADDR"], environment["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")


def test_workers_are_labelled_by_host_and_by_rank_where_a_host_has_several():
    assert PLACEMENT.labels() == {0: "a", 1: "b rank 1", 2: "b rank 2"}
    assert PLACEMENT.hosts_by_rank() == {0: "a", 1: "b", 2: "b"}

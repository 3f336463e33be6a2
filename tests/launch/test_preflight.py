from dataclasses import replace

from dragoman.launch import preflight
from dragoman.launch.preflight import HostProblem, HostReport

GOOD = HostReport(
    "2.13.0",
    0,
    "settings",
    "data",
    free_bytes=100,
    needed_bytes=50,
    parameters=1,
    vocabulary=1,
    checkpoint="",
    problems=(),
)


def find(reports: dict[str, HostReport], workers: int = 1) -> list[tuple[str, str]]:
    found = preflight.compare_hosts(reports, dict.fromkeys(reports, workers), "settings")
    return [(problem.host, problem.sentence) for problem in found]


def test_equal_hosts_have_no_problems():
    assert find({"a": GOOD, "b": GOOD}) == []


def test_every_difference_is_named_with_its_host():
    odd = replace(GOOD, torch="2.11.0", data="other", settings="others", problems=["x is missing: copy it."])
    found = find({"a": GOOD, "b": odd, "c": GOOD})
    assert {host for host, _ in found} == {"b"}
    sentences = " ".join(sentence for _, sentence in found)
    for part in ("torch 2.11.0, others have 2.13.0", "--push to copy it", "--push to copy the recipe", "x is missing"):
        assert part in sentences


def test_only_the_first_host_needs_disk_space_for_checkpoints():
    full = replace(GOOD, free_bytes=10)
    assert find({"a": GOOD, "b": full}) == []
    [(host, sentence)] = find({"a": full, "b": GOOD})
    assert host == "a"
    assert "10 B of free disk space" in sentence
    assert "up to 50 B" in sentence


def test_each_worker_needs_a_gpu_if_any_host_has_some():
    [(host, sentence)] = find({"a": replace(GOOD, gpus=2), "b": replace(GOOD, gpus=1)}, workers=2)
    assert host == "b"
    assert sentence == "has 1 GPUs for 2 workers: write b:1."


def test_equal_versions_with_different_code_differ():
    assert preflight.compare_versions("0.1.0 (aa)", {"a": "0.1.0 (aa)", "b": "0.1.0 (bb)"}) == [
        HostProblem("b", "has Dragoman 0.1.0 (bb), this machine has 0.1.0 (aa): install the same version on both.")
    ]


def test_clocks_that_are_far_off_are_reported():
    [problem] = preflight.compare_clocks({"a": 0.4, "b": -90.0})
    assert problem == HostProblem("b", "has a clock that is 1 min 30 s behind: use NTP.")


def test_a_host_gets_the_first_address_that_all_others_reach():
    addresses = {
        "a": [("docker0", "172.17.0.1"), ("eth0", "10.0.0.1")],
        "b": [("eth1", "10.0.0.2")],
        "c": [("eth0", "10.0.0.3")],
    }
    reached = {
        "a": {"b": ["10.0.0.2"], "c": ["10.0.0.3"]},
        "b": {"a": ["172.17.0.1", "10.0.0.1"], "c": ["10.0.0.3"]},
        "c": {"a": ["10.0.0.1"], "b": ["10.0.0.2"]},
    }
    chosen, problems = preflight.choose_addresses(addresses, reached)
    assert chosen == {"a": ("eth0", "10.0.0.1"), "b": ("eth1", "10.0.0.2"), "c": ("eth0", "10.0.0.3")}
    assert problems == []


def test_a_host_that_cannot_be_reached_is_reported_with_the_hosts_that_tried():
    addresses = {"a": [("eth0", "10.0.0.1")], "b": [("eth0", "10.0.0.2")]}
    _, [problem] = preflight.choose_addresses(addresses, {"a": {"b": []}, "b": {"a": ["10.0.0.1"]}})
    assert problem.host == "b"
    assert problem.sentence.startswith("cannot be reached by a at its addresses (10.0.0.2 on eth0)")


def test_the_newest_checkpoint_is_found_and_the_first_of_equals_is_preferred():
    older, newer = (replace(GOOD, checkpoint=f"step-0000{step}") for step in ("0900", "1000"))
    assert preflight.newest_checkpoint_host({"a": older, "b": newer, "c": newer}) == "b"
    assert preflight.newest_checkpoint_host({"a": newer, "b": newer}) == "a"
    assert preflight.newest_checkpoint_host({"a": GOOD, "b": GOOD}) is None


def test_the_duration_of_a_request_is_not_a_clock_offset():
    assert preflight.clock_offsets({"a": 103.0, "b": 90.0, "c": 120.0}, 100.0, 108.0) == {
        "a": 0.0,
        "b": -14.0,
        "c": 16.0,
    }

"""A slow link, found before a run starts."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ..small import TINY
from .hosts import HOME, Hosts, missing_requirements

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]


RATE, BITS_PER_S = "1mbit", 1e6
"""So slow that an exchange takes far longer than a step computes, however busy the machine is."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(["a", "b"], rate=RATE) as made:
        yield made


def run_doctor(hosts: Hosts, *arguments: str, code: int) -> dict:
    command = [sys.executable, "-m", "dragoman", "doctor", "--ssh-config", str(hosts.ssh_config), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_slow_link_is_measured_and_the_plan_is_not_sensible(hosts):
    found = run_doctor(
        hosts, "--hosts", "a,b", "tiny", *TINY, "exchange.method=plain", "model.feed_forward=4096",
        "--what-if", "link=100gbit", code=1,
    )  # fmt: skip
    assert {(link["from"], link["to"]) for link in found["links"]} == {("a", "b"), ("b", "a")}
    for link in found["links"]:
        assert link["bits_per_s"] == pytest.approx(BITS_PER_S, rel=0.2)
    assert "The link from" in found["estimate"]["limits"][0]
    assert any(remedy.startswith("a link of") for remedy in found["estimate"]["remedies"])
    assert found["what_if"]["link=100gbit"]["step_s"] < found["estimate"]["step_s"]


def test_a_launch_that_would_mostly_wait_warns_before_it_starts(hosts, data):
    command = [
        sys.executable, "-m", "dragoman", "launch", "--hosts", "a,b", "--ssh-config", str(hosts.ssh_config), "--",
        "train", "tiny", "--data", str(data.path), "--out", f"{HOME}/run", *TINY, "exchange.method=plain",
        "model.feed_forward=4096", "training.steps=1", "evaluation.bleu=false",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    warned, _, trained = " ".join(done.stdout.split()).partition("Training starts anyway")
    assert "would be spent waiting" in warned
    assert "faster: exchange.method=auto" in warned
    assert "Finished after 1 steps" in trained

"""The story of a slow port, told before the start."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ..small import TINY
from .hosts import HOME, Hosts, why_not

pytestmark = [pytest.mark.system, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture(scope="module")
def bed() -> Iterator[Hosts]:
    with Hosts(["a", "b"], rate="20mbit") as made:
        yield made


def consult(bed: Hosts, *words: str, code: int) -> dict:
    command = [sys.executable, "-m", "dragoman", "doctor", "--ssh-config", str(bed.ssh_config), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_slow_port_is_measured_and_the_plan_refused(bed):
    # So many weights that sending them takes longer than computing on a busy machine too.
    found = consult(
        bed, "--hosts", "a,b", "tiny", *TINY, "exchange.method=plain", "model.feed_forward=65536",
        "--what-if", "link=100gbit", code=1,
    )  # fmt: skip
    assert {(link["from"], link["to"]) for link in found["links"]} == {("a", "b"), ("b", "a")}
    for link in found["links"]:
        assert link["bits_per_s"] == pytest.approx(20e6, rel=0.3)
    plans = found["plans"]
    assert "port between" in " ".join(plans["as it is"]["sentences"])
    assert any(remedy.startswith("a link of") for remedy in plans["as it is"]["remedies"])
    assert plans["link=100gbit"]["step_s"] < plans["as it is"]["step_s"]


def test_a_launch_with_a_method_that_will_wait_says_so_before_it_starts(bed, data):
    for host in bed:
        host.set_rate("4mbit")
    command = [
        sys.executable, "-m", "dragoman", "launch", "--hosts", "a,b", "--ssh-config", str(bed.ssh_config), "--",
        "train", "tiny", "--data", str(data.path), "--out", f"{HOME}/run", *TINY, "exchange.method=plain",
        "model.feed_forward=8192", "training.steps=1", "evaluation.bleu=false",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told, _, trained = " ".join(done.stdout.split()).partition("It is started all the same")
    assert "would be spent waiting" in told
    assert "instead exchange.method=local" in told
    assert "Finished after 1 step" in trained

"""Synthesis on three hosts that are killed, frozen, cut off and restarted, and whose coordinator is killed, too."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.files import read_json

from ..shared_folder import shared_folder
from ..synthesis_models import LINES, MIDDLE_SCORE, make_models
from .hosts import Hosts, missing_requirements

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(["a", "b", "c"]) as made:
        yield made


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "synthesis-models", make_models)


def start(models: Path, text: Path, out: Path, *options: str) -> "subprocess.Popen[str]":
    # Without rules about text, which would drop most translations of a small model, and with them what is compared.
    rules = ["cleaning.rules=agreement", f"cleaning.min_score={MIDDLE_SCORE}"]
    command = [sys.executable, "-m", "dragoman", "synthesize", str(models / "int8"), str(text), *rules]
    return subprocess.Popen(
        [*command, "--score-back-with", str(models / "backward"), "--out", str(out), "--shard-lines", "4", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    return output


def wait_for_shards(out: Path, count: int, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and len(list(out.glob("shards/*.zst"))) < count:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()[0]


def test_hosts_and_the_coordinator_are_killed_and_the_corpus_is_that_of_one_machine(
    hosts: Hosts,
    models: Path,
    tmp_path: Path,
) -> None:
    text = tmp_path / "text.en"
    text.write_text("".join(f"{line} {number}\n" for number in range(8) for line in LINES))
    finish(start(models, text, tmp_path / "alone"))

    out, options = tmp_path / "out", ("--hosts", "a,b,c", "--ssh-config", str(hosts.ssh_config))
    process = start(models, text, out, *options)
    wait_for_shards(out, 10, process)
    hosts["a"].kill()
    wait_for_shards(out, 30, process)
    process.kill()
    process.communicate()
    process = start(models, text, out, *options)
    wait_for_shards(out, 50, process)
    hosts["a"].restart()
    hosts["b"].freeze()
    wait_for_shards(out, 70, process)
    hosts["c"].disconnect()
    time.sleep(1)
    hosts["c"].reconnect()
    hosts["b"].thaw()
    finish(process)

    for name in ("corpus.en", "corpus.de"):
        assert (out / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    made = read_json(out / "synthesis.json")["corpus"]
    assert made["read_lines"] == 8 * len(LINES)
    assert made["translated_pairs"] == 8 * len(LINES)
    assert made["kept_pairs"] > len(LINES)
    assert made["dropped"]["agreement"]["pairs"] > len(LINES)
    assert len(made["hosts"]) == 3

"""Hosts that cannot be used."""

from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.launch.ssh import SshClient, parse_hosts
from dragoman.progress_callback import no_progress
from dragoman.synthesis.synthesizer import SynthesisRequest, synthesize


def test_hosts_that_do_not_answer_are_reported_all_at_once(models: Path, text: Path, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("Host nobody nothing\n  ProxyCommand sh -c 'echo no route to it >&2; exit 1'\n")
    hosts = parse_hosts("nobody,nothing")
    request = SynthesisRequest(
        models / "int8", [text], tmp_path / "out", machines=hosts, client=SshClient(tmp_path / "ssh")
    )
    with pytest.raises(DragomanError, match=r"Nothing was started:\n  nobody cannot be used: .*\n  nothing cannot be"):
        synthesize(request, no_progress)


def test_a_worker_that_fails_at_every_start_ends_the_synthesis_with_its_reason(
    models: Path, text: Path, tmp_path: Path
) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'No module named dragoman' >&2\nexit 1\n")
    failing.chmod(0o755)
    request = SynthesisRequest(models / "int8", [text], tmp_path / "out", client=SshClient(python=str(failing)))
    with (
        pytest.warns(match="localhost was lost"),
        pytest.raises(DragomanError, match=r"No worker is left: localhost lost its worker 3 times in a row .No module"),
    ):
        synthesize(request, no_progress)

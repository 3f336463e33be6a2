"""`dragoman serve`: arguments and their errors. tests/system/test_serving.py tests a running server."""

from pathlib import Path
from subprocess import CompletedProcess

from dragoman.serving.api_keys import ApiKeys

from ..command_line import run_command


def test_serve_creates_keys_and_names_missing_arguments(tmp_path: Path) -> None:
    def serve(*arguments: str) -> "CompletedProcess[str]":
        return run_command("serve", *arguments, cwd=tmp_path)

    key = serve("--keys", "keys.txt", "--new-key", "alice").stdout.strip()
    assert ApiKeys.read(tmp_path / "keys.txt").owner(key) == "alice"
    for arguments, reason in (
        ((), "serve needs a model"),
        (("--new-key", "bob"), "give --keys FILE"),
        (("nowhere",), "check the path"),
        (("nowhere", "--keys", "missing"), "Cannot read the key file"),
    ):
        done = serve(*arguments)
        assert done.returncode == 2
        assert reason in done.stderr
        assert "Traceback" not in done.stderr

"""`dragoman serve`: arguments and their errors. tests/system/test_serving.py tests a running server."""

import subprocess
import sys
from pathlib import Path

from dragoman.serving.api_keys import ApiKeys


def test_serve_creates_keys_and_names_missing_arguments(tmp_path: Path) -> None:
    def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dragoman", "serve", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

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

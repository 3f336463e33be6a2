"""Keys that only their owners know, and rates."""

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.serving.limits import REMEMBERED_CLIENTS, Keys, RateLimiter, make_key


def test_a_key_is_shown_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    alice, bob = make_key(path, "alice"), make_key(path, "bob the builder")
    content = path.read_text()
    assert alice not in content
    assert bob not in content
    assert path.stat().st_mode & 0o077 == 0, "for its owner alone"
    keys = Keys.read(path)
    assert keys.owner(alice) == "alice"
    assert keys.owner(bob) == "bob the builder"
    for wrong in ("", "alice", alice[:-1], alice + "x", content.split()[1], "\ud800"):
        assert keys.owner(wrong) is None


@pytest.mark.parametrize("content", ["", "# only a remark\n", "no-hash\n", "name deadbeef\n"])
def test_a_file_that_holds_no_keys_opens_no_door(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(content)
    with pytest.raises(DragomanError, match="--new-key NAME"):
        Keys.read(path)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    make_key(tmp_path / "keys.txt", "alice")
    with pytest.raises(DragomanError, match="already"):
        make_key(tmp_path / "keys.txt", "alice")
    with pytest.raises(DragomanError, match="cannot name a key"):
        make_key(tmp_path / "keys.txt", "a\nb")
    with pytest.raises(DragomanError, match="check the path"):
        Keys.read(tmp_path / "absent.txt")


def test_a_client_gets_its_share_of_a_minute_and_then_waits() -> None:
    now = [0.0]
    rates = RateLimiter(6, lambda: now[0])
    assert [rates.wait_s("a") for _ in range(6)] == [0.0] * 6
    assert rates.wait_s("a") == pytest.approx(10)
    assert rates.wait_s("b") == 0, "others are not held up"
    now[0] = 9.0
    assert rates.wait_s("a") == pytest.approx(1)
    now[0] = 10.0
    assert rates.wait_s("a") == 0
    now[0] = 10_000.0
    assert [rates.wait_s("a") == 0 for _ in range(7)] == [True] * 6 + [False], "no more than a minute's worth is saved"


def test_clients_are_forgotten_before_they_fill_the_memory() -> None:
    rates = RateLimiter(6)
    for number in range(REMEMBERED_CLIENTS + 500):
        rates.wait_s(str(number))
    assert len(rates._buckets) == REMEMBERED_CLIENTS


def test_the_command_makes_keys_and_says_what_it_lacks(tmp_path: Path) -> None:
    def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dragoman", "serve", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    key = serve("--keys", "keys.txt", "--new-key", "alice").stdout.strip()
    assert Keys.read(tmp_path / "keys.txt").owner(key) == "alice"
    for arguments, reason in (
        ((), "serve needs a model"),
        (("--new-key", "bob"), "give --keys FILE"),
        (("nowhere",), "check the path"),
        (("nowhere", "--keys", "absent"), "cannot be read"),
    ):
        done = serve(*arguments)
        assert done.returncode == 2
        assert reason in done.stderr
        assert "Traceback" not in done.stderr

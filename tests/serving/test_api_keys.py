"""API keys: created once, stored as hashes."""

from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.serving.api_keys import ApiKeys, create_api_key


def test_a_key_is_returned_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    alice, bob = create_api_key(path, "alice"), create_api_key(path, "bob the builder")
    content = path.read_text()
    assert alice not in content
    assert bob not in content
    assert path.stat().st_mode & 0o077 == 0, "readable by its owner only"
    keys = ApiKeys.read(path)
    assert keys.owner(alice) == "alice"
    assert keys.owner(bob) == "bob the builder"
    for wrong in ("", "alice", alice[:-1], alice + "x", content.split()[1], "\ud800"):
        assert keys.owner(wrong) is None


@pytest.mark.parametrize(
    "content", ["", "# only a comment\n", "no-hash\n", "name deadbeef\n", "name " + 64 * "é" + "\n"]
)
def test_a_file_without_valid_keys_is_rejected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(content)
    with pytest.raises(DragomanError, match="--new-key NAME"):
        ApiKeys.read(path)


def test_a_duplicate_or_invalid_name_is_rejected(tmp_path: Path) -> None:
    create_api_key(tmp_path / "keys.txt", "alice")
    with pytest.raises(DragomanError, match="already"):
        create_api_key(tmp_path / "keys.txt", "alice")
    with pytest.raises(DragomanError, match="not a valid key name"):
        create_api_key(tmp_path / "keys.txt", "a\nb")


def test_a_missing_file_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match="check the path"):
        ApiKeys.read(tmp_path / "missing.txt")

"""Finished shards on disk."""

from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.synthesis.shard_store import ShardHeader, ShardStore, StoredCandidate, pack_shard

HEADER = ShardHeader(3, 30, 2, "here", "CTranslate2 on a CPU", 1.5, [0.5], [-0.25, 0.125])
TRANSLATED = [
    ("a\u2028b", [StoredCandidate("x", -0.5, 0.75), StoredCandidate("y\u0085", -1.25)]),
    ("", [StoredCandidate("", 0.0)]),
]


@pytest.fixture
def store(tmp_path: Path) -> ShardStore:
    store = ShardStore(tmp_path / "shards")
    store.open()
    return store


def test_a_shard_is_read_as_it_was_written(store: ShardStore) -> None:
    store.write(3, pack_shard(HEADER, TRANSLATED))
    header, lines = store.read(3)
    assert header == store.read_header(3) == HEADER
    assert list(lines) == TRANSLATED
    assert store.finished() == {3}


def test_what_a_killed_process_left_is_no_shard(store: ShardStore, tmp_path: Path) -> None:
    draft = tmp_path / "shards" / ".00000004.jsonl.zst.12345678-1-12345678"
    draft.write_bytes(b"half")
    assert store.finished() == set()
    store.open()
    assert not draft.exists()


@pytest.mark.parametrize("damage", [lambda content: content[:-4], lambda content: b"", lambda content: b"x" + content])
def test_a_damaged_shard_is_named_with_a_remedy(store: ShardStore, damage: object) -> None:
    store.write(3, damage(pack_shard(HEADER, TRANSLATED)))
    with pytest.raises(DragomanError, match=r"00000003.jsonl.zst is damaged: remove it"):
        store.read(3)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: b"x" + content])
def test_a_damaged_header_is_named_with_a_remedy(store: ShardStore, damage: object) -> None:
    store.write(3, damage(pack_shard(HEADER, TRANSLATED)))
    with pytest.raises(DragomanError, match=r"00000003.jsonl.zst is damaged: remove it"):
        store.read_header(3)

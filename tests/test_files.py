import pytest

from dragoman.errors import DragomanError
from dragoman.files import locked, publish_folder, read_json, replacing, sweep, write_atomic


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "file.json"
    write_atomic(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_published_folder_replaces_an_earlier_one(tmp_path):
    for content in ("first", "second"):
        (tmp_path / "new" / "sub").mkdir(parents=True)
        (tmp_path / "new" / "sub" / "file").write_text(content)
        publish_folder(tmp_path / "new", tmp_path / "final")
        assert (tmp_path / "final" / "sub" / "file").read_text() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["final"]


def test_only_drafts_of_killed_writers_are_swept(tmp_path):
    (tmp_path / "kept" / ".draft").mkdir(parents=True)
    (tmp_path / "kept" / ".draft" / "part").write_text("x")
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / ".file.tmp").write_text("x")
    (tmp_path / "kept" / ".link").symlink_to("file")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]


def test_damaged_json_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(DragomanError, match=r"x.json is not valid JSON"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_lock_that_is_taken_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path if kind == "folder" else tmp_path / "data.lock"
    with locked(path), pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    with locked(path, wait=False):
        pass

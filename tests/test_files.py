import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.files import (
    ABANDONED_S,
    apply_umask,
    draft_path,
    final_path,
    locked,
    publish_folder,
    publish_new_folder,
    read_json,
    remove_drafts,
    remove_orphaned_drafts,
    replacing,
    write_atomic,
)

WRITE_DRAFTS = """
import sys, time
from pathlib import Path
from dragoman.files import draft_path, replacing

folder = draft_path(Path(sys.argv[1]) / "step-00000001")
folder.mkdir()
(folder / "weights").write_text("half")
draft_path(Path(sys.argv[1]) / "last").symlink_to("step-00000001")
with replacing(Path(sys.argv[1]) / "state.json") as draft:
    draft.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("name", ["model", "a b.tar.gz", ".hidden", "folder/.x/file"])
def test_the_path_of_a_draft_tells_the_path_that_it_will_have(name, tmp_path):
    path = tmp_path / name
    assert final_path(path) == path
    assert final_path(draft_path(path)) == path
    assert final_path(draft_path(path) / "weights") == path / "weights"


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


def test_a_folder_that_exists_is_not_replaced_by_a_new_one(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert publish_new_folder(tmp_path / "first", tmp_path / "final")
    assert not publish_new_folder(tmp_path / "second", tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "first"
    assert (tmp_path / "second" / "file").read_text() == "second"


def test_only_drafts_of_processes_that_are_gone_are_orphaned(tmp_path):
    with subprocess.Popen([sys.executable, "-c", WRITE_DRAFTS, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        try:
            writer.stdout.readline()
            drafts = sorted(tmp_path.iterdir())
            remove_orphaned_drafts(tmp_path)
            assert sorted(tmp_path.iterdir()) == drafts
            assert len(drafts) == 3
        finally:
            writer.send_signal(signal.SIGKILL)
    write_atomic(tmp_path / "kept", "x")
    remove_orphaned_drafts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_drafts_of_other_machines_are_orphaned_after_a_day(tmp_path):
    own = draft_path(tmp_path / "a")
    machine = own.name.split(".")[2].partition("-")[0]
    fresh, old = (own.with_name(own.name.replace(machine, other)) for other in ("0123abcd", "4567cdef"))
    unnamed = tmp_path / ".b.89abcdef.tmp"
    for draft in (own, fresh, old, unnamed):
        draft.write_text("half")
    for draft in (own, old, unnamed):
        os.utime(draft, times=(0, time.time() - ABANDONED_S - 60))
    remove_orphaned_drafts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([own, fresh])


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_published_files_have_the_modes_that_the_umask_allows(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = draft_path(tmp_path / "model")
        (folder / "sub").mkdir(parents=True)
        for file, mode in (("a", 0o600), ("b", 0o666), ("sub/c", 0o400), ("sub/d", 0o755)):
            (folder / file).touch()
            (folder / file).chmod(mode)
        (folder / "sub").chmod(0o700)
        publish_folder(folder, tmp_path / "model")
    finally:
        os.umask(before)
    for path in (tmp_path / "model", *(tmp_path / "model").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask
    assert len(list((tmp_path / "model").rglob("*"))) == 5


def test_modes_are_set_through_no_link(tmp_path):
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(Path("..", "secret"))
    (tmp_path / "folder" / "dangling").symlink_to("nowhere")
    apply_umask(tmp_path / "folder")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_the_only_writer_of_a_folder_sweeps_all_drafts(tmp_path):
    (tmp_path / "kept" / ".draft").mkdir(parents=True)
    (tmp_path / "kept" / ".draft" / "part").write_text("x")
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / ".file.tmp").write_text("x")
    (tmp_path / "kept" / ".link").symlink_to("file")
    remove_drafts(tmp_path)
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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_to_a_full_disk_names_the_file(tmp_path, code):
    with pytest.raises(OSError, match="full") as raised, replacing(tmp_path / "corpus.de"):
        raise OSError(code, "full")
    assert raised.value.filename == str(tmp_path / "corpus.de")

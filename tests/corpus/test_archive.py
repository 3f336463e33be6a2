"""Archives: extraction of members, limits, and malicious or damaged files."""

import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.corpus.archive import unpack
from dragoman.corpus.download_cache import VerifiedFile
from dragoman.errors import CorpusError


def tar_of(*entries: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(entries: dict[str, bytes], attributes: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = attributes
            info.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(info, data)
    return out.getvalue()


def archived(tmp_path: Path, data: bytes) -> VerifiedFile:
    path = tmp_path / "archive.tgz"
    path.write_bytes(data)
    return VerifiedFile(path, hashlib.sha256(data).hexdigest())


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


PLAIN = {"a/x.en": b"one\n", "a/x.de": b"eins\n", "other": b"-"}


@pytest.mark.parametrize("kind", ["w:gz", "w", "w:xz", "w:bz2", "zip"])
def test_only_the_requested_members_are_unpacked_in_the_requested_order(kind: str, tmp_path: Path) -> None:
    data = zip_of(PLAIN) if kind == "zip" else tar_of(*PLAIN.items(), mode=kind)
    paths = unpack(archived(tmp_path, data), ["a/x.de", "a/x.en"], tmp_path / "out")
    assert [path.read_bytes() for path in paths] == [b"eins\n", b"one\n"]
    assert files_in(tmp_path / "out") == ["a/x.de", "a/x.en"]


def test_a_leading_dot_in_a_name_is_ignored(tmp_path: Path) -> None:
    (path,) = unpack(archived(tmp_path, tar_of(("./a/x.en", b"one"))), ["a/x.en"], tmp_path / "out")
    assert path.read_bytes() == b"one"


def test_members_are_unpacked_again_only_if_the_archive_or_the_file_changed(tmp_path: Path) -> None:
    archive = archived(tmp_path, tar_of(*PLAIN.items()))
    (path,) = unpack(archive, ["a/x.en"], tmp_path / "out")
    before = path.stat().st_ino
    assert unpack(archive, ["a/x.en", "a/x.de"], tmp_path / "out")[0].stat().st_ino == before
    path.write_bytes(b"half")
    assert unpack(archive, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"half"  # The same size.
    path.write_bytes(b"ha")
    assert unpack(archive, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"one\n"
    newer = archived(tmp_path, tar_of(("a/x.en", b"two\n")))
    assert unpack(newer, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"two\n"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "a\\..\\evil"])
@pytest.mark.parametrize(
    "make", [lambda name: tar_of((name, b"!")), lambda name: zip_of({name: b"!"})], ids=["tar", "zip"]
)
def test_names_that_point_outside_the_folder_are_rejected(
    name: str, make: Callable[[str], bytes], tmp_path: Path
) -> None:
    for asked in (name, "harmless"):
        with pytest.raises(CorpusError, match=r"points outside the archive's folder"):
            unpack(archived(tmp_path, make(name)), [asked], tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(
    "entries",
    [
        (link("x", "/etc/passwd"),),
        (("y", b"!"), link("x", "y", tarfile.LNKTYPE)),
        (link("x", "", tarfile.FIFOTYPE),),
        (link("x", "", tarfile.CHRTYPE),),
        (link("x", "", tarfile.DIRTYPE),),
    ],
    ids=["symlink", "hardlink", "pipe", "device", "folder"],
)
def test_members_that_are_not_regular_files_are_rejected(entries: tuple[tarfile.TarInfo, ...], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"not a regular file"):
        unpack(archived(tmp_path, tar_of(*entries)), ["x"], tmp_path / "out")
    assert files_in(tmp_path / "out") == []


def test_a_member_below_a_link_is_rejected(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = tar_of(link("a", str(outside)), ("a/x", b"!"))
    with pytest.raises(CorpusError, match="not a regular file"):
        unpack(archived(tmp_path, data), ["a/x"], tmp_path / "out")
    assert list(outside.iterdir()) == []


def test_a_link_in_a_zip_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not a regular file"):
        unpack(archived(tmp_path, zip_of({"x": b"/etc/passwd"}, 0o120777 << 16)), ["x"], tmp_path / "out")


@pytest.mark.parametrize(("kind", "asked"), [("tar", "x"), ("tar", "after"), ("zip", "x")])
def test_a_zip_bomb_is_rejected(kind: str, asked: str, tmp_path: Path) -> None:
    entries = {"x": bytes(40_000_000), "after": b"!"}
    data = zip_of(entries) if kind == "zip" else tar_of(*entries.items())
    with pytest.raises(CorpusError, match=r"unpacks to more than 16,777,216 bytes"):
        unpack(archived(tmp_path, data), [asked], tmp_path / "out")
    assert files_in(tmp_path / "out") == []


def test_truncated_archives_leave_no_files(tmp_path: Path) -> None:
    body = {f"a/{n}": os.urandom(3000) for n in range(4)}
    for number, data in enumerate((tar_of(*body.items()), tar_of(*body.items(), mode="w"), zip_of(body))):
        for cut in (0, 1, 100, len(data) // 3, 12_000):
            out = tmp_path / f"{number}-{cut}"
            with pytest.raises(CorpusError, match=r"archive\.tgz: this archive (is truncated|has no)"):
                unpack(archived(tmp_path, data[:cut]), list(body), out)
            assert files_in(tmp_path / f"{number}-{cut}") == []


NOT_ARCHIVES = [b"<html>404</html>", gzip.compress(b"no tar", mtime=0), b"PK\3\4 no zip", b"\x1f\x8b\x08junk"]


@pytest.mark.parametrize("data", NOT_ARCHIVES)
def test_a_file_that_is_not_an_archive_is_reported(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"archive\.tgz: this archive is truncated, damaged or not an archive"):
        unpack(archived(tmp_path, data), ["x"], tmp_path / "out")


def test_a_damaged_byte_is_detected(tmp_path: Path) -> None:
    for data in (tar_of(("x", os.urandom(5000))), zip_of({"x": os.urandom(5000)})):
        damaged = data[:2000] + bytes([data[2000] ^ 255]) + data[2001:]
        with pytest.raises(CorpusError):
            unpack(archived(tmp_path, damaged), ["x"], tmp_path / "out")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["w:gz", "w", "w:xz", "w:bz2", "zip"]),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_any_damage_ends_in_a_corpus_error_or_in_files(
    kind: str, damage: list[tuple[float, int]], tmp_path: Path
) -> None:
    data = bytearray(zip_of(PLAIN) if kind == "zip" else tar_of(*PLAIN.items(), mode=kind))
    for place, flip in damage:
        data[int(place * len(data))] ^= flip
    archive = archived(tmp_path, bytes(data))
    try:
        unpack(archive, list(PLAIN), tmp_path / "out" / archive.sha256)
    except CorpusError:
        assert files_in(tmp_path / "out" / archive.sha256) == []


def test_unpacking_reports_progress(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    archive = archived(tmp_path, tar_of(*PLAIN.items()))
    unpack(archive, ["a/x.en"], tmp_path / "out", progress=lambda *report: reports.append(report))
    size_bytes = archive.path.stat().st_size
    assert reports[-1] == ("archive.tgz (unpacking)", size_bytes, size_bytes)


def test_a_missing_member_is_reported_with_the_available_ones(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"has no b and no c: correct `members`; it contains a/x\.en, a/x\.de, other"):
        unpack(archived(tmp_path, tar_of(*PLAIN.items())), ["b", "a/x.en", "c"], tmp_path / "out")
    assert files_in(tmp_path / "out") == []

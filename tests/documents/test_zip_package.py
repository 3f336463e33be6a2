"""Archives are opened only if they are harmless."""

import io
import zipfile
import zlib

import pytest
from benchmarks.sample_documents import make_docx, make_odt

from dragoman.documents import zip_package
from dragoman.documents.document import UnreadableError
from dragoman.documents.open_document import parse_open_document
from dragoman.documents.word_document import parse_docx
from dragoman.documents.zip_package import ZipPackage


def archive_of(parts: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return content.getvalue()


def parts_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused():
    with pytest.raises(UnreadableError, match="suspicious size"):
        ZipPackage(archive_of({"content.xml": b"a" * (50 << 20)}))


def test_an_archive_that_is_too_large_is_refused_before_anything_is_unpacked(monkeypatch):
    monkeypatch.setattr(zip_package, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(UnreadableError, match="unpacks to more than"):
        ZipPackage(archive_of({"a": b"a" * 600, "b": b"b" * 600}))
    with pytest.raises(UnreadableError, match=r"more than 10,000 parts"):
        ZipPackage(archive_of({str(number): b"" for number in range(10_001)}))


def test_a_part_that_lies_about_its_size_is_refused():
    content = bytearray(archive_of({"content.xml": b"a" * 5000}))
    size = (5000).to_bytes(4, "little")
    assert content.count(size) == 2
    package = ZipPackage(bytes(content.replace(size, (50).to_bytes(4, "little"))))
    with pytest.raises(UnreadableError, match="damaged"):
        package.read("content.xml")


def test_text_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(zip_package, "MAX_PART_BYTES", 100)
    with pytest.raises(UnreadableError, match="text of the file is larger"):
        parse_docx(make_docx())


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "C:\\a", "..\\a"])
def test_parts_outside_of_the_archive_are_refused(name):
    with pytest.raises(UnreadableError, match="names that are not allowed"):
        ZipPackage(archive_of({"content.xml": b"<a/>", name: b"x"}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_parts_with_one_name_are_refused():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a.xml", "1")
        archive.writestr("a.xml", "2")
    with pytest.raises(UnreadableError, match="not allowed"):
        ZipPackage(content.getvalue())


def test_encrypted_files_are_refused_with_the_remedy():
    with pytest.raises(UnreadableError, match="without a password"):
        parse_docx(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    flagged = bytearray(archive_of({"content.xml": b"<a/>"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        flagged[flagged.index(signature) + offset] |= 1
    with pytest.raises(UnreadableError, match="is encrypted"):
        ZipPackage(bytes(flagged))
    parts = parts_of(make_odt())
    parts["META-INF/manifest.xml"] = b"<manifest><encryption-data/></manifest>"
    with pytest.raises(UnreadableError, match="is encrypted"):
        parse_open_document(archive_of(parts))


@pytest.mark.parametrize("part", ["word/document.xml", "[Content_Types].xml"])
def test_entities_and_document_types_are_refused(part):
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    for bomb in (
        f'<!DOCTYPE a [<!ENTITY a0 "ha">{levels}]><a>&a9;</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/hostname"><a/>',
    ):
        with pytest.raises(UnreadableError):
            parse_docx(archive_of(parts_of(make_docx()) | {part: bomb.encode()}))


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive", zlib.compress(b"a" * 100)])
def test_other_files_are_refused(content):
    with pytest.raises(UnreadableError, match="damaged, or not in the format"):
        ZipPackage(content)


def test_an_archive_keeps_the_order_dates_and_compression_of_its_parts():
    content = make_odt()
    copy = ZipPackage(content).replace({"content.xml": b"<new/>"})
    before, after = (zipfile.ZipFile(io.BytesIO(archive)).infolist() for archive in (content, copy))
    assert [(entry.filename, entry.date_time, entry.compress_type) for entry in before] == [
        (entry.filename, entry.date_time, entry.compress_type) for entry in after
    ]
    assert parts_of(copy) == parts_of(content) | {"content.xml": b"<new/>"}

"""Downloads against a real server on this machine that behaves as badly as servers do."""

import gzip
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.corpus.archive import unpack
from dragoman.corpus.download import Patience, fetch
from dragoman.corpus.download_cache import Fetched, Remote, cache_root, local_path
from dragoman.errors import CorpusError, DownloadError

BODY = bytes(range(256)) * 300
SHA256 = hashlib.sha256(BODY).hexdigest()


@dataclass
class Site:
    """What the server does next: each request takes the next behaviour, the last one stays."""

    body: bytes = BODY
    etag: str | None = '"one"'
    behaviours: list[Callable[["Handler"], None]] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    release: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        self.site.requests.append(dict(self.headers))
        behaviours = self.site.behaviours or [whole]
        behave = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        self.close_connection = True
        behave(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def start(self) -> int:
        """Where the body begins: at the Range that was asked for, if If-Range still holds."""
        wanted = self.headers.get("Range", "")
        if wanted and self.headers.get("If-Range", self.site.etag) == self.site.etag:
            return int(wanted.removeprefix("bytes=").rstrip("-"))
        return 0

    def head(self, status: int, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        if self.site.etag:
            self.send_header("ETag", self.site.etag)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def ranged(self, sent: int | None = None, claimed: int = 0) -> None:
        """An honest answer, but for the bytes that are really sent and for what is claimed on top."""
        begin, total = self.start(), len(self.site.body)
        if begin and begin >= total:
            self.head(416, 0, Content_Range=f"bytes */{total}")
            return
        headers = {"Content_Range": f"bytes {begin}-{total - 1}/{total}"} if begin else {}
        self.head(206 if begin else 200, total - begin + claimed, **headers)
        end = total if sent is None else min(total, begin + sent)
        self.wfile.write(self.site.body[begin:end])

    def cut(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def whole(handler: Handler) -> None:
    handler.ranged()


def cut_after(sent: int) -> Callable[[Handler], None]:
    def behave(handler: Handler) -> None:
        handler.ranged(sent)
        handler.cut()

    return behave


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    return lambda handler: handler.head(code, 0, **headers)


def ignores_range(sent: int | None = None) -> Callable[[Handler], None]:
    def behave(handler: Handler) -> None:
        body = handler.site.body
        handler.head(200, len(body))
        handler.wfile.write(body[:sent])
        handler.cut()

    return behave


def endless(handler: Handler) -> None:
    handler.head(200)
    try:
        while not handler.site.release.is_set():
            handler.wfile.write(b"x" * 65536)
    except OSError:
        pass


def stalls(handler: Handler) -> None:
    handler.ranged(1000)
    handler.wfile.flush()
    handler.site.release.wait(20)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    made = Site()
    with serving(made):
        yield made


class serving:  # noqa: N801 - reads as a verb
    def __init__(self, site: Site) -> None:
        self.site = site
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"site": site}))
        self.server.daemon_threads = True
        site.url = f"http://127.0.0.1:{self.server.server_address[1]}/data/train.tgz"

    def __enter__(self) -> Site:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self.site

    def __exit__(self, *_: object) -> None:
        self.site.release.set()
        self.server.shutdown()
        self.server.server_close()


def patience(waits: list[float] | None = None, **changes: float) -> Patience:
    return Patience(sleep=(waits if waits is not None else []).append, **{"timeout_s": 5.0, **changes})  # type: ignore[arg-type]


def pinned(site: Site) -> Remote:
    return Remote(site.url, len(BODY), SHA256)


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*.part*"))


def test_a_file_arrives_whole_and_is_not_fetched_twice(site: Site, tmp_path: Path) -> None:
    first = fetch(pinned(site), tmp_path)
    second = fetch(pinned(site), tmp_path)
    assert first == second == Fetched(tmp_path / "downloads" / local_path(site.url), SHA256)
    assert first.path.read_bytes() == BODY
    assert len(site.requests) == 1
    assert leftovers(tmp_path) == []


def test_a_transfer_cut_several_times_resumes_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.behaviours = [cut_after(1000), cut_after(20_000), cut_after(5), whole]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == [None, "bytes=1000-", "bytes=21000-", "bytes=21005-"]
    assert site.requests[1]["If-Range"] == '"one"'


def test_a_later_process_resumes_what_an_earlier_one_left(site: Site, tmp_path: Path) -> None:
    site.behaviours = [cut_after(1000), status(503)]
    with pytest.raises(DownloadError, match=r"1,000 of 76,800 bytes received\): run the command again to resume"):
        fetch(pinned(site), tmp_path, patience=patience())
    site.behaviours = [whole]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert site.requests[-1]["Range"] == "bytes=1000-"


def test_a_server_that_ignores_ranges_gets_a_fresh_start(site: Site, tmp_path: Path) -> None:
    site.behaviours = [cut_after(1000), ignores_range()]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY


def test_a_server_that_ignores_ranges_and_cuts_at_the_same_place_is_given_up(site: Site, tmp_path: Path) -> None:
    site.behaviours = [ignores_range(1000)]
    with pytest.raises(DownloadError, match="could not be fetched whole"):
        fetch(pinned(site), tmp_path, patience=patience(attempts=3))
    assert len(site.requests) == 4


def test_a_file_that_changes_between_attempts_is_not_spliced(site: Site, tmp_path: Path) -> None:
    def change(handler: Handler) -> None:
        handler.site.body, handler.site.etag = BODY, '"two"'
        handler.ranged()

    site.body = bytes(len(BODY))
    site.behaviours = [cut_after(1000), change]
    assert fetch(Remote(site.url), tmp_path, patience=patience()).path.read_bytes() == BODY


def test_a_splice_that_the_checksum_betrays_is_begun_anew(site: Site, tmp_path: Path) -> None:
    def forget_the_old(handler: Handler) -> None:
        handler.site.body = BODY
        handler.ranged()

    site.body, site.etag = bytes(len(BODY)), None
    site.behaviours = [cut_after(1000), forget_the_old, whole]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY


def test_without_a_version_and_a_checksum_nothing_is_resumed(site: Site, tmp_path: Path) -> None:
    site.etag = None
    site.behaviours = [cut_after(1000), whole]
    assert fetch(Remote(site.url), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert "Range" not in site.requests[1]


def test_a_length_claimed_too_long_does_not_hurt_a_known_file(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: (handler.ranged(claimed=10), handler.cut())[0]]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY


def test_a_length_claimed_too_long_is_settled_by_the_server_itself(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: (handler.ranged(claimed=10), handler.cut())[0]]
    assert fetch(Remote(site.url), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert site.requests[1]["Range"] == f"bytes={len(BODY)}-"


def test_a_length_claimed_too_short_is_noticed(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: handler.ranged(claimed=-1000), whole]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert len(site.requests) == 2


def test_a_length_always_claimed_too_short_ends_in_an_error(site: Site, tmp_path: Path) -> None:
    def short(handler: Handler) -> None:
        handler.head(200, 1000)
        handler.wfile.write(BODY)

    site.behaviours = [short]
    with pytest.raises(DownloadError, match=r"the server ended early; 1,000 of 76,800 bytes received"):
        fetch(pinned(site), tmp_path, patience=patience(attempts=2))


def test_a_busy_server_is_asked_again_after_the_wait_that_it_names(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [status(503, Retry_After="7"), status(429, Retry_After="9999"), status(500), whole]
    assert fetch(pinned(site), tmp_path, patience=patience(waits, longest_wait_s=30)).path.read_bytes() == BODY
    assert waits[:2] == [7, 30]
    assert 0 < waits[2] <= 30


def test_retry_after_may_be_a_date(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [
        status(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        status(503, Retry_After="when it suits us"),
        whole,
    ]
    fetch(pinned(site), tmp_path, patience=patience(waits))
    assert waits[0] == 0
    assert waits[1] > 0


def test_waits_grow_and_stay_bounded(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [status(503)]
    with pytest.raises(DownloadError, match=r"HTTP 503; 0 of 76,800 bytes received.*train\.tgz into a folder.*--from"):
        fetch(pinned(site), tmp_path, patience=patience(waits, attempts=8, backoff_s=1, longest_wait_s=10))
    assert len(waits) == 7
    assert all(0.5 * min(2 * 2**n, 10) <= wait <= min(2 * 2**n, 10) for n, wait in enumerate(waits))


def test_a_stalled_transfer_is_taken_up_again(site: Site, tmp_path: Path) -> None:
    site.behaviours = [stalls, whole]
    assert fetch(pinned(site), tmp_path, patience=patience(timeout_s=0.2)).path.read_bytes() == BODY
    assert site.requests[1]["Range"] == "bytes=1000-"


def test_a_missing_file_is_reported_at_once(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(404)]
    with pytest.raises(DownloadError, match="HTTP 404 Not Found: check the address"):
        fetch(pinned(site), tmp_path, patience=patience())
    assert len(site.requests) == 1


def test_a_server_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(DownloadError, match="could not be fetched whole"):
            fetch(Remote(url), tmp_path, patience=patience(attempts=2))


def test_redirects_are_followed(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="/elsewhere"), whole]
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY


def test_a_circle_of_redirects_ends(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="/again")]
    with pytest.raises(DownloadError, match="leads nowhere"):
        fetch(pinned(site), tmp_path, patience=patience())


def test_a_redirect_to_a_local_file_is_refused(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="file:///etc/passwd")]
    with pytest.raises(DownloadError, match="leads nowhere"):
        fetch(Remote(site.url), tmp_path, patience=patience())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "data/train.tgz", "https://", "http://["])
def test_only_web_addresses_are_fetched(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="is not a web address"):
        fetch(Remote(url), tmp_path)


@pytest.mark.parametrize("size", [len(BODY), None])
def test_endless_data_is_cut_off(size: int | None, site: Site, tmp_path: Path) -> None:
    site.behaviours = [endless]
    with pytest.raises(DownloadError, match="sends more than"):
        fetch(Remote(site.url, size), tmp_path, patience=patience(), limit_bytes=500_000)
    assert leftovers(tmp_path) == []


def test_a_file_announced_too_large_is_not_begun(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="sends more than the 1,000 bytes"):
        fetch(Remote(site.url), tmp_path, patience=patience(), limit_bytes=1000)


def test_a_few_bytes_too_many_are_noticed(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"expected 76,790 bytes, got 76,800"):
        fetch(Remote(site.url, len(BODY) - 10), tmp_path, patience=patience())


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_checksum_is_told_and_nothing_is_left(kind: str, site: Site, tmp_path: Path) -> None:
    wrong = "0" * {"sha256": 64, "md5": 32}[kind]
    got = hashlib.new(kind, BODY).hexdigest()
    with pytest.raises(DownloadError, match=f"expected {kind} {wrong}, got {got}"):
        fetch(Remote(site.url, **{kind: wrong}), tmp_path, patience=patience())
    assert leftovers(tmp_path) == []
    assert len(site.requests) == 1


def test_the_first_downloads_checksum_holds_for_later_ones(site: Site, tmp_path: Path) -> None:
    path = fetch(Remote(site.url), tmp_path).path
    path.unlink()
    site.body, site.etag = BODY + b"!", '"two"'
    with pytest.raises(DownloadError, match=r"receipt\.json describes .*delete that receipt"):
        fetch(Remote(site.url), tmp_path, patience=patience())
    next(path.parent.glob("*.receipt.json")).unlink()
    assert fetch(Remote(site.url), tmp_path).path.read_bytes() == BODY + b"!"


def test_a_cached_file_that_was_damaged_is_fetched_again(site: Site, tmp_path: Path) -> None:
    path = fetch(Remote(site.url), tmp_path).path
    path.write_bytes(b"x" + BODY[1:])
    assert fetch(Remote(site.url), tmp_path).path.read_bytes() == BODY
    assert len(site.requests) == 2


def test_a_damaged_part_is_found_out_by_the_checksum(site: Site, tmp_path: Path) -> None:
    place = tmp_path / "downloads" / local_path(site.url)
    place.parent.mkdir(parents=True)
    place.with_name("train.tgz.part").write_bytes(b"x" * 1000)
    place.with_name("train.tgz.part.json").write_text(json.dumps({"version": '"one"'}))
    assert fetch(pinned(site), tmp_path, patience=patience()).path.read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == ["bytes=1000-", None]


def test_a_full_disk_is_told_before_the_transfer(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("dragoman.corpus.download.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match=r"needs 76,800 bytes and .* has 10 free: free some space"):
        fetch(pinned(site), tmp_path, patience=patience())


def test_progress_is_told_up_to_the_last_byte(site: Site, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    fetch(pinned(site), tmp_path, progress=lambda *news: told.append(news))
    assert told[-1] == ("train.tgz", len(BODY), len(BODY))


@pytest.mark.parametrize("layout", ["train.tgz", "host"])
def test_a_mirror_serves_by_name_or_by_address_without_network(layout: str, site: Site, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    held = mirror / (local_path(site.url) if layout == "host" else layout)
    held.parent.mkdir(parents=True)
    held.write_bytes(BODY)
    assert fetch(pinned(site), tmp_path / "cache", mirror=mirror) == Fetched(held, SHA256)
    held.write_bytes(b"x")
    with pytest.raises(DownloadError, match="expected 76,800 bytes, got 1"):
        fetch(pinned(site), tmp_path / "cache", mirror=mirror)
    held.unlink()
    with pytest.raises(DownloadError, match=r"holds neither train\.tgz nor 127"):
        fetch(pinned(site), tmp_path / "cache", mirror=mirror)
    assert site.requests == []


def _fetch_in_a_process(url: str, cache: Path) -> None:
    fetch(Remote(url), cache)


def test_two_processes_share_one_download(site: Site, tmp_path: Path) -> None:
    workers = [get_context("spawn").Process(target=_fetch_in_a_process, args=(site.url, tmp_path)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(site.requests) == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(min_size=1, max_size=300_000) | st.just(BODY),
    cuts=st.lists(st.integers(0, 80_000), max_size=6),
    pin=st.booleans(),
    etag=st.sampled_from(['"v"', None, 'W/"weak"']),
)
def test_cuts_at_any_byte_leave_no_trace(
    body: bytes, cuts: list[int], pin: bool, etag: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = Site(body=body, etag=etag, behaviours=[*map(cut_after, cuts), whole])
    with serving(site):
        remote = Remote(site.url, sha256=hashlib.sha256(body).hexdigest() if pin else None)
        found = fetch(remote, tmp_path_factory.mktemp("cache"), patience=patience(attempts=20))
    assert found.path.read_bytes() == body
    assert found.sha256 == hashlib.sha256(body).hexdigest()


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CACHE", "/one")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert cache_root() == Path("/one")
    monkeypatch.delenv("DRAGOMAN_CACHE")
    assert cache_root() == Path("/two/dragoman")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/three")
    assert cache_root() == Path("/three/.cache/dragoman")


@given(st.text(max_size=400))
def test_no_address_leads_out_of_the_cache(text: str) -> None:
    for url in (f"http://host/{text}", f"http://host/../../{text}", f"http://host/%2e%2e/%2f{text}?q={text}"):
        try:
            path = local_path(url)
        except DownloadError:
            continue
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert all(len(part.encode()) <= 200 for part in path.parts)


# Archives


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


def archived(tmp_path: Path, data: bytes) -> Fetched:
    path = tmp_path / "archive.tgz"
    path.write_bytes(data)
    return Fetched(path, hashlib.sha256(data).hexdigest())


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


PLAIN = {"a/x.en": b"one\n", "a/x.de": b"eins\n", "other": b"-"}


@pytest.mark.parametrize("kind", ["w:gz", "w", "w:xz", "w:bz2", "zip"])
def test_only_the_named_members_are_unpacked_in_the_order_asked_for(kind: str, tmp_path: Path) -> None:
    data = zip_of(PLAIN) if kind == "zip" else tar_of(*PLAIN.items(), mode=kind)
    paths = unpack(archived(tmp_path, data), ["a/x.de", "a/x.en"], tmp_path / "out")
    assert [path.read_bytes() for path in paths] == [b"eins\n", b"one\n"]
    assert files_in(tmp_path / "out") == ["a/x.de", "a/x.en"]


def test_names_with_a_leading_dot_are_the_same(tmp_path: Path) -> None:
    (path,) = unpack(archived(tmp_path, tar_of(("./a/x.en", b"one"))), ["a/x.en"], tmp_path / "out")
    assert path.read_bytes() == b"one"


def test_what_is_unpacked_is_recognised_until_archive_or_file_change(tmp_path: Path) -> None:
    archive = archived(tmp_path, tar_of(*PLAIN.items()))
    (path,) = unpack(archive, ["a/x.en"], tmp_path / "out")
    before = path.stat().st_ino
    assert unpack(archive, ["a/x.en", "a/x.de"], tmp_path / "out")[0].stat().st_ino == before
    path.write_bytes(b"half")
    assert unpack(archive, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"half"  # the same size
    path.write_bytes(b"ha")
    assert unpack(archive, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"one\n"
    newer = archived(tmp_path, tar_of(("a/x.en", b"two\n")))
    assert unpack(newer, ["a/x.en"], tmp_path / "out")[0].read_bytes() == b"two\n"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "a\\..\\evil"])
@pytest.mark.parametrize(
    "make", [lambda name: tar_of((name, b"!")), lambda name: zip_of({name: b"!"})], ids=["tar", "zip"]
)
def test_names_that_lead_out_are_refused(name: str, make: Callable[[str], bytes], tmp_path: Path) -> None:
    for asked in (name, "harmless"):
        with pytest.raises(CorpusError, match=r"leads out of the archive's folder"):
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
def test_members_that_are_no_plain_files_are_refused(entries: tuple[tarfile.TarInfo, ...], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no plain file"):
        unpack(archived(tmp_path, tar_of(*entries)), ["x"], tmp_path / "out")
    assert files_in(tmp_path / "out") == []


def test_a_file_behind_a_link_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = tar_of(link("a", str(outside)), ("a/x", b"!"))
    with pytest.raises(CorpusError, match="no plain file"):
        unpack(archived(tmp_path, data), ["a/x"], tmp_path / "out")
    assert list(outside.iterdir()) == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no plain file"):
        unpack(archived(tmp_path, zip_of({"x": b"/etc/passwd"}, 0o120777 << 16)), ["x"], tmp_path / "out")


@pytest.mark.parametrize(("kind", "asked"), [("tar", "x"), ("tar", "after"), ("zip", "x")])
def test_a_bomb_does_not_go_off(kind: str, asked: str, tmp_path: Path) -> None:
    entries = {"x": bytes(40_000_000), "after": b"!"}
    data = zip_of(entries) if kind == "zip" else tar_of(*entries.items())
    with pytest.raises(CorpusError, match=r"unpacks to more than 16,777,216 bytes"):
        unpack(archived(tmp_path, data), [asked], tmp_path / "out")
    assert files_in(tmp_path / "out") == []


def test_archives_cut_anywhere_leave_nothing_behind(tmp_path: Path) -> None:
    body = {f"a/{n}": os.urandom(3000) for n in range(4)}
    for number, data in enumerate((tar_of(*body.items()), tar_of(*body.items(), mode="w"), zip_of(body))):
        for cut in (0, 1, 100, len(data) // 3, 12_000):
            out = tmp_path / f"{number}-{cut}"
            with pytest.raises(CorpusError, match=r"archive\.tgz: this archive (is cut short|has no)"):
                unpack(archived(tmp_path, data[:cut]), list(body), out)
            assert files_in(tmp_path / f"{number}-{cut}") == []


@pytest.mark.parametrize("data", [b"<html>404</html>", gzip.compress(b"no tar"), b"PK\3\4 no zip", b"\x1f\x8b\x08junk"])
def test_what_is_no_archive_is_named(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"archive\.tgz: this archive is cut short, damaged or not an archive at all"):
        unpack(archived(tmp_path, data), ["x"], tmp_path / "out")


def test_a_damaged_byte_is_noticed(tmp_path: Path) -> None:
    for data in (tar_of(("x", os.urandom(5000))), zip_of({"x": os.urandom(5000)})):
        spoilt = data[:2000] + bytes([data[2000] ^ 255]) + data[2001:]
        with pytest.raises(CorpusError):
            unpack(archived(tmp_path, spoilt), ["x"], tmp_path / "out")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["w:gz", "w", "w:xz", "w:bz2", "zip"]),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_whatever_is_damaged_ends_in_one_kind_of_error(
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


def test_unpacking_tells_its_progress(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    archive = archived(tmp_path, tar_of(*PLAIN.items()))
    unpack(archive, ["a/x.en"], tmp_path / "out", progress=lambda *news: told.append(news))
    size_bytes = archive.path.stat().st_size
    assert told[-1] == ("archive.tgz (unpacking)", size_bytes, size_bytes)


def test_a_missing_member_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"has no b and no c: correct `members`; it holds a/x\.en, a/x\.de, other"):
        unpack(archived(tmp_path, tar_of(*PLAIN.items())), ["b", "a/x.en", "c"], tmp_path / "out")
    assert files_in(tmp_path / "out") == []

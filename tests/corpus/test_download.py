"""Downloads from a local HTTP server that misbehaves in many ways."""

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.corpus.download import RetryPolicy, fetch
from dragoman.corpus.download_cache import RemoteFile, VerifiedFile, cache_root, local_path
from dragoman.errors import DownloadError

BODY = bytes(range(256)) * 300
SHA256 = hashlib.sha256(BODY).hexdigest()


@dataclass
class Site:
    """A served file and the behaviours of the server: each request uses the next one, and the last is repeated."""

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
        """Start of the body: that of the requested Range if If-Range still matches, else 0."""
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
        """A correct response, except for the number of bytes sent and for `claimed` bytes added to Content-Length."""
        begin, total = self.start(), len(self.site.body)
        if begin and begin >= total:
            self.head(416, 0, Content_Range=f"bytes */{total}")
            return
        headers = {"Content_Range": f"bytes {begin}-{total - 1}/{total}"} if begin else {}
        self.head(206 if begin else 200, total - begin + claimed, **headers)
        end = total if sent is None else min(total, begin + sent)
        self.wfile.write(self.site.body[begin:end])

    def disconnect(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def whole(handler: Handler) -> None:
    handler.ranged()


def disconnect_after(sent: int) -> Callable[[Handler], None]:
    def behave(handler: Handler) -> None:
        handler.ranged(sent)
        handler.disconnect()

    return behave


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    return lambda handler: handler.head(code, 0, **headers)


def ignores_range(sent: int | None = None) -> Callable[[Handler], None]:
    def behave(handler: Handler) -> None:
        body = handler.site.body
        handler.head(200, len(body))
        handler.wfile.write(body[:sent])
        handler.disconnect()

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
    served = Site()
    with serving(served):
        yield served


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


def retries(waits: list[float] | None = None, **changes: float) -> RetryPolicy:
    return RetryPolicy(sleep=(waits if waits is not None else []).append, **{"timeout_s": 5.0, **changes})  # type: ignore[arg-type]


def with_checksum(site: Site) -> RemoteFile:
    return RemoteFile(site.url, len(BODY), SHA256)


def partial_files(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*.part*"))


def test_a_file_is_downloaded_completely_and_only_once(site: Site, tmp_path: Path) -> None:
    first = fetch(with_checksum(site), tmp_path)
    second = fetch(with_checksum(site), tmp_path)
    assert first == second == VerifiedFile(tmp_path / "downloads" / local_path(site.url), SHA256)
    assert first.path.read_bytes() == BODY
    assert len(site.requests) == 1
    assert partial_files(tmp_path) == []


def test_a_transfer_interrupted_several_times_resumes_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.behaviours = [disconnect_after(1000), disconnect_after(20_000), disconnect_after(5), whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == [None, "bytes=1000-", "bytes=21000-", "bytes=21005-"]
    assert site.requests[1]["If-Range"] == '"one"'


def test_a_later_process_resumes_an_earlier_download(site: Site, tmp_path: Path) -> None:
    site.behaviours = [disconnect_after(1000), status(503)]
    with pytest.raises(DownloadError, match=r"1,000 of 76,800 bytes received\): run the command again to resume"):
        fetch(with_checksum(site), tmp_path, retry=retries())
    site.behaviours = [whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert site.requests[-1]["Range"] == "bytes=1000-"


def test_a_server_that_ignores_ranges_restarts_the_download(site: Site, tmp_path: Path) -> None:
    site.behaviours = [disconnect_after(1000), ignores_range()]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY


def test_a_server_that_ignores_ranges_and_never_gets_further_is_an_error(site: Site, tmp_path: Path) -> None:
    site.behaviours = [ignores_range(1000)]
    with pytest.raises(DownloadError, match="could not be downloaded completely"):
        fetch(with_checksum(site), tmp_path, retry=retries(attempts=3))
    assert len(site.requests) == 4


def test_a_file_that_changes_between_attempts_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    def change(handler: Handler) -> None:
        handler.site.body, handler.site.etag = BODY, '"two"'
        handler.ranged()

    site.body = bytes(len(BODY))
    site.behaviours = [disconnect_after(1000), change]
    assert fetch(RemoteFile(site.url), tmp_path, retry=retries()).path.read_bytes() == BODY


def test_a_resumed_file_with_a_wrong_checksum_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    def serve_the_new_file(handler: Handler) -> None:
        handler.site.body = BODY
        handler.ranged()

    site.body, site.etag = bytes(len(BODY)), None
    site.behaviours = [disconnect_after(1000), serve_the_new_file, whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY


def test_a_download_without_version_and_checksum_is_not_resumed(site: Site, tmp_path: Path) -> None:
    site.etag = None
    site.behaviours = [disconnect_after(1000), whole]
    assert fetch(RemoteFile(site.url), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert "Range" not in site.requests[1]


def test_a_content_length_that_is_too_long_does_not_matter_if_the_size_is_known(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: (handler.ranged(claimed=10), handler.disconnect())[0]]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY


def test_a_content_length_that_is_too_long_is_corrected_by_the_next_response(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: (handler.ranged(claimed=10), handler.disconnect())[0]]
    assert fetch(RemoteFile(site.url), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert site.requests[1]["Range"] == f"bytes={len(BODY)}-"


def test_a_content_length_that_is_too_short_is_noticed(site: Site, tmp_path: Path) -> None:
    site.behaviours = [lambda handler: handler.ranged(claimed=-1000), whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert len(site.requests) == 2


def test_a_content_length_that_is_always_too_short_is_an_error(site: Site, tmp_path: Path) -> None:
    def short(handler: Handler) -> None:
        handler.head(200, 1000)
        handler.wfile.write(BODY)

    site.behaviours = [short]
    with pytest.raises(DownloadError, match=r"the server ended early; 1,000 of 76,800 bytes received"):
        fetch(with_checksum(site), tmp_path, retry=retries(attempts=2))


def test_retry_after_is_respected_up_to_the_maximum(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [status(503, Retry_After="7"), status(429, Retry_After="9999"), status(500), whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries(waits, max_wait_s=30)).path.read_bytes() == BODY
    assert waits[:2] == [7, 30]
    assert 0 < waits[2] <= 30


def test_retry_after_may_be_a_date(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [
        status(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        status(503, Retry_After="later"),
        whole,
    ]
    fetch(with_checksum(site), tmp_path, retry=retries(waits))
    assert waits[0] == 0
    assert waits[1] > 0


def test_waits_grow_exponentially_up_to_the_maximum(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    site.behaviours = [status(503)]
    with pytest.raises(DownloadError, match=r"HTTP 503; 0 of 76,800 bytes received.*train\.tgz into a folder.*--from"):
        fetch(with_checksum(site), tmp_path, retry=retries(waits, attempts=8, backoff_s=1, max_wait_s=10))
    assert len(waits) == 7
    assert all(0.5 * min(2 * 2**n, 10) <= wait <= min(2 * 2**n, 10) for n, wait in enumerate(waits))


def test_a_stalled_transfer_is_resumed(site: Site, tmp_path: Path) -> None:
    site.behaviours = [stalls, whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries(timeout_s=0.2)).path.read_bytes() == BODY
    assert site.requests[1]["Range"] == "bytes=1000-"


def test_a_missing_file_is_reported_without_retries(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(404)]
    with pytest.raises(DownloadError, match="HTTP 404 Not Found: check the address"):
        fetch(with_checksum(site), tmp_path, retry=retries())
    assert len(site.requests) == 1


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(DownloadError, match="could not be downloaded completely"):
            fetch(RemoteFile(url), tmp_path, retry=retries(attempts=2))


def test_redirects_are_followed(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="/elsewhere"), whole]
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY


def test_a_redirect_loop_is_an_error(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="/again")]
    with pytest.raises(DownloadError, match="redirects to no usable address"):
        fetch(with_checksum(site), tmp_path, retry=retries())


def test_a_redirect_to_a_local_file_is_rejected(site: Site, tmp_path: Path) -> None:
    site.behaviours = [status(302, Location="file:///etc/passwd")]
    with pytest.raises(DownloadError, match="redirects to no usable address"):
        fetch(RemoteFile(site.url), tmp_path, retry=retries())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "data/train.tgz", "https://", "http://["])
def test_only_http_addresses_are_accepted(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="is not a web address"):
        fetch(RemoteFile(url), tmp_path)


@pytest.mark.parametrize("size", [len(BODY), None])
def test_an_endless_response_is_aborted(size: int | None, site: Site, tmp_path: Path) -> None:
    site.behaviours = [endless]
    with pytest.raises(DownloadError, match="is larger than"):
        fetch(RemoteFile(site.url, size), tmp_path, retry=retries(), limit_bytes=500_000)
    assert partial_files(tmp_path) == []


def test_a_file_announced_as_too_large_is_not_downloaded(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="is larger than the 1,000 bytes"):
        fetch(RemoteFile(site.url), tmp_path, retry=retries(), limit_bytes=1000)


def test_a_few_extra_bytes_are_noticed(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"expected 76,790 bytes, got 76,800"):
        fetch(RemoteFile(site.url, len(BODY) - 10), tmp_path, retry=retries())


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_checksum_is_reported_and_the_file_removed(kind: str, site: Site, tmp_path: Path) -> None:
    wrong = "0" * {"sha256": 64, "md5": 32}[kind]
    got = hashlib.new(kind, BODY).hexdigest()
    with pytest.raises(DownloadError, match=f"expected {kind} {wrong}, got {got}"):
        fetch(RemoteFile(site.url, **{kind: wrong}), tmp_path, retry=retries())
    assert partial_files(tmp_path) == []
    assert len(site.requests) == 1


def test_the_checksum_of_the_first_download_is_binding_for_later_ones(site: Site, tmp_path: Path) -> None:
    path = fetch(RemoteFile(site.url), tmp_path).path
    path.unlink()
    site.body, site.etag = BODY + b"!", '"two"'
    with pytest.raises(DownloadError, match=r"checksum\.json .*delete that record"):
        fetch(RemoteFile(site.url), tmp_path, retry=retries())
    next(path.parent.glob("*.checksum.json")).unlink()
    assert fetch(RemoteFile(site.url), tmp_path).path.read_bytes() == BODY + b"!"


def test_a_damaged_cached_file_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    path = fetch(RemoteFile(site.url), tmp_path).path
    path.write_bytes(b"x" + BODY[1:])
    assert fetch(RemoteFile(site.url), tmp_path).path.read_bytes() == BODY
    assert len(site.requests) == 2


def test_a_damaged_partial_file_is_detected_by_the_checksum(site: Site, tmp_path: Path) -> None:
    place = tmp_path / "downloads" / local_path(site.url)
    place.parent.mkdir(parents=True)
    place.with_name("train.tgz.part").write_bytes(b"x" * 1000)
    place.with_name("train.tgz.part.json").write_text(json.dumps({"version": '"one"'}))
    assert fetch(with_checksum(site), tmp_path, retry=retries()).path.read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == ["bytes=1000-", None]


def test_a_full_disk_is_reported_before_the_transfer(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("dragoman.corpus.download.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match=r"needs 76,800 bytes, but .* has 10 free: free some space"):
        fetch(with_checksum(site), tmp_path, retry=retries())


def test_progress_is_reported_up_to_the_last_byte(site: Site, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    fetch(with_checksum(site), tmp_path, progress=lambda *report: reports.append(report))
    assert reports[-1] == ("train.tgz", len(BODY), len(BODY))


@pytest.mark.parametrize("layout", ["train.tgz", "host"])
def test_a_mirror_has_files_by_name_or_by_address_and_needs_no_network(layout: str, site: Site, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirrored = mirror / (local_path(site.url) if layout == "host" else layout)
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(BODY)
    assert fetch(with_checksum(site), tmp_path / "cache", mirror=mirror) == VerifiedFile(mirrored, SHA256)
    mirrored.write_bytes(b"x")
    with pytest.raises(DownloadError, match="expected 76,800 bytes, got 1"):
        fetch(with_checksum(site), tmp_path / "cache", mirror=mirror)
    mirrored.unlink()
    with pytest.raises(DownloadError, match=r"contains neither train\.tgz nor 127"):
        fetch(with_checksum(site), tmp_path / "cache", mirror=mirror)
    assert site.requests == []


def _fetch_in_a_process(url: str, cache: Path) -> None:
    fetch(RemoteFile(url), cache)


def test_two_processes_share_one_download(site: Site, tmp_path: Path) -> None:
    workers = [get_context("spawn").Process(target=_fetch_in_a_process, args=(site.url, tmp_path)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(site.requests) == 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(min_size=1, max_size=300_000) | st.just(BODY),
    interruptions=st.lists(st.integers(0, 80_000), max_size=6),
    has_checksum=st.booleans(),
    etag=st.sampled_from(['"v"', None, 'W/"weak"']),
)
def test_interruptions_at_any_byte_do_not_change_the_file(
    body: bytes,
    interruptions: list[int],
    has_checksum: bool,
    etag: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    site = Site(body=body, etag=etag, behaviours=[*map(disconnect_after, interruptions), whole])
    with serving(site):
        remote = RemoteFile(site.url, sha256=hashlib.sha256(body).hexdigest() if has_checksum else None)
        found = fetch(remote, tmp_path_factory.mktemp("cache"), retry=retries(attempts=20))
    assert found.path.read_bytes() == body
    assert found.sha256 == hashlib.sha256(body).hexdigest()


def test_the_cache_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CACHE", "/one")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert cache_root() == Path("/one")
    monkeypatch.delenv("DRAGOMAN_CACHE")
    assert cache_root() == Path("/two/dragoman")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/three")
    assert cache_root() == Path("/three/.cache/dragoman")


@given(st.text(max_size=400))
def test_no_address_points_outside_the_cache(text: str) -> None:
    for url in (f"http://host/{text}", f"http://host/../../{text}", f"http://host/%2e%2e/%2f{text}?q={text}"):
        try:
            path = local_path(url)
        except DownloadError:
            continue
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert all(len(part.encode()) <= 200 for part in path.parts)

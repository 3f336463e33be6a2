from dataclasses import replace

import pytest

from dragoman import log_reader, log_thinning
from dragoman.events import StepDone, StepsSummed
from dragoman.launch.worker_processes import follow_lines
from dragoman.log_lines import line_of
from dragoman.log_reader import LogFollower, ThinningReader
from dragoman.log_thinning import thin

from .insight.synthetic_runs import synthetic_run

DONE = next(event for event in synthetic_run(1) if isinstance(event, StepDone))


@pytest.fixture(autouse=True)
def short_past(monkeypatch):
    """Thin logs of a few hundred steps as those of long runs, and read them in small blocks."""
    monkeypatch.setattr(log_thinning, "WHOLE_STEPS", 16)
    monkeypatch.setattr(log_thinning, "MAX_SPANS", 16)
    monkeypatch.setattr(log_reader, "BLOCK_BYTES", 5000)


def steps(first: int, last: int) -> list:
    return [line_of(replace(DONE, step=number, at_s=float(number))) for number in range(first, last + 1)]


def write(path, lines) -> None:
    path.write_bytes(b"".join(line.text + b"\n" for line in lines))


def read_text(follower: LogFollower) -> bytes:
    return b"".join(text for text, _ in follower.read_blocks())


def test_a_follower_reads_each_line_once(tmp_path):
    path = tmp_path / "events-0.jsonl"
    follower = LogFollower(path)
    assert read_text(follower) == b""
    write(path, steps(1, 100))
    assert read_text(follower) == path.read_bytes()
    with path.open("ab") as file:
        file.write(b"new\nincomplete")
    assert read_text(follower) == b"new\n"


def test_a_follower_reads_a_thinned_log_from_its_beginning(tmp_path):
    path = tmp_path / "events-0.jsonl"
    write(path, steps(1, 100))
    follower = LogFollower(path)
    read_text(follower)
    write(path, thin(steps(1, 100)))
    blocks = list(follower.read_blocks())
    assert [is_thinned for _, is_thinned in blocks] == [True] + [False] * (len(blocks) - 1)
    assert b"".join(text for text, _ in blocks) == path.read_bytes()


def test_a_reader_has_the_same_lines_whether_the_log_was_thinned_or_not(tmp_path):
    full, thinned = ThinningReader(tmp_path / "full"), ThinningReader(tmp_path / "thinned")
    known: list = []
    for end in range(50, 500, 50):
        known = [*thin(known), *steps(end - 49, end)]
        write(tmp_path / "full", steps(1, end))
        write(tmp_path / "thinned", known)
        assert full.read_new()
        assert thinned.read_new()
        assert [line.text for line in full.lines] == [line.text for line in thinned.lines]
    assert any(isinstance(line.event, StepsSummed) for line in full.lines)
    assert not full.read_new()


def test_the_launcher_gets_each_line_once_when_a_log_is_thinned(tmp_path):
    path = tmp_path / "events-0.jsonl"
    write(path, steps(1, 90))
    read = follow_lines(path, latest_only=False)
    assert read() == []
    write(path, steps(1, 95))
    assert read() == [line.text.decode() for line in steps(91, 95)]
    write(path, [*thin(steps(1, 97)), *steps(98, 99)])
    assert read() == [line.text.decode() for line in steps(96, 99)]


def test_a_follower_does_not_chase_a_fast_writer(tmp_path):
    path = tmp_path / "events-0.jsonl"
    write(path, steps(1, 100))
    follower = LogFollower(path)
    for blocks, _ in enumerate(follower.read_blocks(), start=1):
        assert blocks < 100
        with path.open("ab") as file:
            file.writelines(line.text + b"\n" for line in steps(101, 120))
    assert follower.offset < path.stat().st_size

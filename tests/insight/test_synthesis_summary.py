"""What the page and the report say about a synthesis."""

from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import Event
from dragoman.files import write_json
from dragoman.insight.page import render
from dragoman.insight.report_writer import read_report, to_markdown
from dragoman.insight.synthesis_history import is_synthesis, read_synthesis
from dragoman.insight.synthesis_summary import describe_progress, summarize_syntheses, summarize_synthesis
from dragoman.synthesis_events import ShardTranslated, SynthesisEnded, SynthesisStarted, TranslatorChanged

ABOUT = {"run": "corpus", "version": "1", "model": "m", "languages": "en-de", "device": "cpu", "lines": 1000}
CORPUS = {
    "source": "de",
    "target": "en",
    "translated_pairs": 1000,
    "kept_pairs": 990,
    "dropped": {"empty": {"pairs": 10, "examples": [["a", "", 0.0]]}},
}


def write(folder: Path, *events: Event, corpus: dict[str, object] | None = None) -> Path:
    log = EventLog(folder / "events-0.jsonl")
    for event in events:
        log.record(event)
    log.close()
    write_json(folder / "synthesis.json", {"corpus": corpus or {}})
    return folder


def session(done: int = 0, start_s: float = 0.0, **prices: object) -> list[Event]:
    """Two hosts of which one is lost halfway: 100 s, 400 lines."""
    ready = [TranslatorChanged(at_s=start_s + 10, host=host, state="ready", detail="CPU") for host in ("a", "b")]
    shards = [
        ShardTranslated(
            at_s=start_s + 10 + 20 * n, number=n, lines=100, host="a", translating_s=12, tokenizing_s=3, reading_s=2
        )
        for n in (1, 2, 3, 4)
    ]
    lost = TranslatorChanged(at_s=start_s + 55, host="b", state="lost", detail="no route")
    started = SynthesisStarted(at_s=start_s, done_lines=done, hosts=["a", "b"], **ABOUT, **prices)
    return sorted([started, *ready, *shards, lost], key=lambda event: event.at_s)


def test_a_running_synthesis_says_how_long_it_will_take_and_what_it_will_cost(tmp_path: Path) -> None:
    summary = summarize_synthesis(write(tmp_path, *session(price_per_hour=[36.0])), 100.0)
    assert (summary["state"], summary["step"], summary["remaining_s"]) == ("running", 400, pytest.approx(110))
    assert summary["cost"] == {"spent": pytest.approx(2.0), "currency": "USD"}
    assert (
        "400 of 1,000 lines after 1 min 40 s and 2.00 USD, 1 min 50 s left (4.20 USD in total)"
        in (summary["overview"]["how"])
    )


def test_the_terminal_shows_speed_time_left_cost_workers_and_what_limits_it(tmp_path: Path) -> None:
    history = read_synthesis(write(tmp_path, *session(price_per_hour=[36.0])))
    assert describe_progress(history, 100.0) == (
        "5.0 lines/s; 1 min 50 s left; 2.00 USD so far, 4.20 USD in total; 1 of 2 workers ready\n"
        "What limits it: hosts starting or lost, 58 % of the time; the machines translate for 25 %."
    )


def test_until_the_first_shard_the_time_left_is_measured(tmp_path: Path) -> None:
    history = read_synthesis(write(tmp_path, *session()[:3]))
    assert describe_progress(history, 20.0) == (
        "time left: measuring; 2 of 2 workers ready\nWhat limits it: not known before the first shard is translated."
    )


def test_the_next_shard_that_is_late_makes_the_time_left_longer(tmp_path: Path) -> None:
    history = read_synthesis(write(tmp_path, *session()))
    assert history.remaining_s(110.0) == pytest.approx(100)  # Counted down until the next shard is due.
    assert history.remaining_s(170.0) == pytest.approx(600 / (400 / 160))


def test_a_worker_that_translates_its_first_shard_does_not_wait(tmp_path: Path) -> None:
    use = summarize_synthesis(write(tmp_path, *session()[:3]), 60.0)["time_use"]
    assert {activity: seconds for activity, seconds in use.items() if seconds} == {
        "hosts starting or lost": pytest.approx(10), "shards in work": pytest.approx(50),
    }  # fmt: skip


def test_the_time_of_workers_that_wait_or_are_lost_is_what_limits_it(tmp_path: Path) -> None:
    summary = summarize_synthesis(write(tmp_path, *session()), 100.0)
    use = summary["time_use"]
    # The mean of two workers, of which one translated nothing.
    assert (use["translating"], use["tokenizing"]) == (pytest.approx(48 / 2), pytest.approx(12 / 2))
    assert (use["reading text"], use["shards in work"]) == (pytest.approx(8 / 2), pytest.approx(10 / 2))
    assert use["hosts starting or lost"] == pytest.approx((10 + 10 + 45 + 45) / 2)  # b had no result when it was lost.
    assert sum(use.values()) == pytest.approx(100)
    [hosts] = [answer for answer in summary["answers"] if answer["key"] == "hosts"]
    assert hosts["evidence"] == ["a: 400 lines, ready for 1 min 30 s.", "b: 0 lines, ready for 45 s."]
    assert summary["incidents"][-1]["text"] == "b is lost: no route."


def test_a_resumed_synthesis_counts_the_lines_of_earlier_sessions(tmp_path: Path) -> None:
    end = SynthesisEnded(
        at_s=1110, reason="finished", read_lines=1000, translated_pairs=1000, kept_pairs=990, dropped={"empty": 10}
    )
    folder = write(tmp_path, *session(), *session(600, start_s=1000.0), end, corpus=CORPUS)
    summary = summarize_synthesis(folder, 5000.0)
    assert (summary["state"], summary["step"]) == ("finished", 1000)
    assert summary["elapsed_s"] == pytest.approx(90 + 110)
    assert summary["time_use"]["earlier sessions"] == pytest.approx(90)
    assert f"`dragoman prepare {folder} --out DATA`" in summary["overview"]["advice"]
    content = read_report([folder], lambda *_: None)
    assert "990 of 1,000 pairs are in the corpus; 10 were dropped." in to_markdown(content)
    assert '"kind":"synthesis"' in render(**content)


def test_a_synthesis_that_was_killed_is_not_responding(tmp_path: Path) -> None:
    summary = summarize_synthesis(write(tmp_path, *session()), 100000.0)
    assert summary["state"] == "not responding"
    assert "resumes" in summary["overview"]["advice"]


def test_folders_without_a_start_and_runs_beside_syntheses_are_errors(tmp_path: Path) -> None:
    folder = write(tmp_path, SynthesisEnded(reason="interrupted"))
    assert is_synthesis(folder)
    with pytest.raises(DragomanError, match="has not started translating yet"):
        summarize_synthesis(folder, 0.0)
    with pytest.raises(DragomanError, match="run is not a synthesis"):
        summarize_syntheses([folder, tmp_path / "run"], 0.0)

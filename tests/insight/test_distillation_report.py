import json
from html.parser import HTMLParser

import pytest

from dragoman.errors import DragomanError
from dragoman.insight import distillation_report as report

ROW = {"before": "a", "after": "b", "win_back": "beam 4: 2.1 x the time"}
CONTENT = {
    "name": "students/<b>", "set": "valid", "sentences": 1200, "signature": "nrefs:1|tok:13a", "currency": "EUR",
    "upper_bound": {"bleu": 27.31, "low": 26.42, "high": 28.17, "win_back": "50 % more steps (3 h 10 min)"},
    "systems": [
        {"name": "teacher", "size_bytes": 62_800_000, "words_per_s": 300.0, "beam": 4, "bleu": 27.31, "chrf": 55.0},
        {"name": "student", "size_bytes": 12_600_000, "words_per_s": 3600.0, "beam": 1, "bleu": 26.01, "chrf": 54.0},
    ],
    "ledger": [
        {"cause": "beam", "bleu": -0.3, "low": -0.5, "high": -0.1, **ROW},
        {"cause": "int8", "bleu": 0.001, "low": -0.2, "high": 0.2, **ROW},
        {"cause": "all together", "bleu": -1.3, "low": -1.6, "high": -1.0, **ROW},
    ],
    "parts": [
        {"name": "synthetic", "state": "own", "seconds": None, "cost": None},
        {"name": "run", "state": "complete", "seconds": 600.0, "cost": 0.35},
    ],
}  # fmt: skip


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "rect", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_and_the_text_state_the_same_losses():
    page = _Page()
    page.feed(report.to_html(CONTENT))
    assert not page.open
    for text in (page.text, report.to_markdown(CONTENT)):
        for fact in (
            "12.6 MB",
            "12.0 x the teacher",
            "-1.30 against the teacher",
            "-0.50 to -0.10",
            "2.1 x the time",
            "26.42 to 28.17",
            "50 % more steps (3 h 10 min)",
        ):
            assert fact in text
        assert "0.35 EUR" in text
        assert "synthetic (given)" in text
        assert "students/<b>" in text  # Escaped on the page.
        assert "checkpoint was chosen on the same set" in text


def test_a_difference_that_rounds_to_zero_has_no_sign():
    assert report.ledger_rows(CONTENT)[2][:2] == ("int8", "0.00")


def test_a_damaged_result_is_named(tmp_path):
    assert not report.is_distillation(tmp_path)
    (tmp_path / report.DISTILLATION_FILE).write_text(json.dumps({"name": "x"}))
    with pytest.raises(DragomanError, match=r"distillation.json is damaged, or of an older version: remove it"):
        report.read_distillation(tmp_path)

import json
import re
from dataclasses import replace

from dragoman.events import EvaluationDone
from dragoman.insight.page import render
from dragoman.insight.run_history import build_history
from dragoman.insight.run_summary import summarize

from .synthetic_runs import synthetic_run


def embedded_data(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_text_of_a_run_cannot_become_markup():
    sample = {"source": "</script><script>alert(1)</script>", "reference": "{{data}}", "translation": ""}
    recorded = [
        replace(event, samples=[sample]) if isinstance(event, EvaluationDone) else event for event in synthetic_run(60)
    ]
    page = render([summarize(build_history(recorded), 0)])
    assert "<script>alert" not in page
    assert embedded_data(page)["runs"][0]["samples"][-1]["samples"] == [sample], "it is shown unchanged"


def test_the_page_loads_nothing_from_elsewhere():
    page = render([summarize(build_history(synthetic_run(60)), 0)])
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)""", page) == []
    assert re.findall(r"https?://(?!www\.w3\.org)", page) == []

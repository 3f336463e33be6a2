from benchmarks.diagnosis_scores import JudgedRun, KindScore, false_alarms, judge_runs, score_by_kind
from hypothesis import given
from hypothesis import strategies as st


def judged(expected: set[str], found: set[str]) -> JudgedRun:
    return JudgedRun("run", frozenset(expected), frozenset(found), expected == found, ", ".join(sorted(found)))


RUNS = [
    judged({"input"}, {"input"}),
    judged({"input"}, set()),
    judged({"launches"}, {"input"}),
    judged(set(), {"evaluation"}),
    judged(set(), set()),
]


def test_precision_counts_what_was_found_and_recall_what_was_expected():
    assert score_by_kind(RUNS) == {
        "evaluation": KindScore(0, 1, 0),
        "input": KindScore(1, 2, 2),
        "launches": KindScore(0, 0, 1),
    }
    scores = score_by_kind(RUNS)
    assert (scores["input"].precision, scores["input"].recall) == (0.5, 0.5)
    assert (scores["launches"].precision, scores["launches"].recall) == (None, 0.0)
    assert (scores["evaluation"].precision, scores["evaluation"].recall) == (0.0, None)


def test_only_warnings_about_healthy_runs_are_false_alarms():
    assert false_alarms(RUNS) == 1


def test_the_table_has_each_run_and_then_the_scores():
    figures = {figure.name: figure for figure in judge_runs(RUNS, "set", "90 %")}
    assert figures["diagnoses that are right, set"].measured == "2 of 5"
    assert figures["healthy runs with a warning, set"].measured == "1 of 2"
    assert figures["input, set"].measured == "precision 1 of 2, recall 1 of 2"
    assert next(judge_runs(RUNS[2:3], "set", "")).measured == "input: WRONG"


KINDS = st.frozensets(st.sampled_from("abc"))


@given(st.lists(st.builds(judged, KINDS, KINDS)))
def test_scores_are_perfect_exactly_if_all_runs_are_right(runs):
    perfect = all(score.precision == score.recall == 1 for score in score_by_kind(runs).values())
    assert perfect == all(run.is_right for run in runs)

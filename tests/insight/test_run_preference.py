from dataclasses import replace

import pytest

from dragoman.events import EvaluationDone, RunStarted
from dragoman.insight.compared_run import Significance
from dragoman.insight.run_comparison import compare_runs
from dragoman.telemetry.kept_translations import KeptTranslations

from .conftest import opened
from .synthetic_runs import PRICED, REFERENCES, p_value, slower, synthetic_run, topic, untested


def test_a_significantly_better_run_is_preferred_at_its_cost(open_run):
    found = compare_runs([open_run("a", 26.2), open_run("b", 27.1, step=slower)], p_value(0.004))
    assert found["preference"] == ("Prefer b: BLEU 27.1 against 26.2 of a (+0.9, p = 0.004) for 4.00 EUR more.")
    assert topic(found, "Significance") == (
        "The difference in BLEU between b and a (+0.9) is significant: p = 0.004, by chrF p = 0.002. Paired bootstrap "
        "over the same 3 sentences."
    )
    assert found["significance"] == {"a": {"bleu_p_value": 0.004, "chrf_p_value": 0.002}}


def test_without_a_significant_difference_the_cheaper_run_is_preferred(open_run):
    found = compare_runs([open_run("a", 26.9), open_run("b", 27.1, step=slower)], p_value(0.3))
    assert found["preference"] == (
        "No significant difference in BLEU (b 27.1, a 26.9; p = 0.300): prefer a, which is 32 % cheaper than b."
    )
    unpriced = [open_run("a", 26.9, overrides=()), open_run("b", 27.1, step=slower, overrides=())]
    assert compare_runs(unpriced, p_value(0.3))["preference"].endswith("prefer a, which is 32 % faster than b.")


def test_equal_runs_at_equal_cost_are_equally_good(open_run):
    found = compare_runs([open_run("a"), open_run("b")], p_value(1.0))
    assert found["preference"].endswith(", nor in cost between a and b: prefer either.")
    assert topic(found, "Settings") == "The same."
    assert topic(found, "Data").startswith("The same: name corpus")
    assert topic(found, "Machines").startswith("The same: workers 2, machines 2, device GPU")
    assert topic(found, "Speed") == "b is as fast as a: 49,000 against 49,000 tokens/s."


def test_of_several_runs_the_cheapest_that_is_as_good_as_the_best_is_preferred(open_run):
    def test(best: KeptTranslations, other: KeptTranslations) -> Significance:
        return Significance(0.001 if other.bleu < 25 else 0.4, 0.5)

    runs = [open_run("a", 20.0), open_run("b", 30.0, step=slower), open_run("c", 29.5)]
    found = compare_runs(runs, test)
    assert "prefer c, which is 32 % cheaper than b." in found["preference"]
    assert set(found["significance"]) == {"a", "c"}


def test_runs_without_translations_say_that_significance_is_not_known_and_why(open_run):
    found = compare_runs([open_run("a", 26.0), open_run("b", 27.0, references=None)], untested)
    assert found["preference"].startswith("Rather b: BLEU 27.0 against 26.0 of a (+1.0) at the same cost; whether that")
    assert topic(found, "Significance").startswith(
        "Not known: the translations by the best checkpoint of b are not in its folder"
    )
    assert "`dragoman score --compare" in topic(found, "Significance")


@pytest.mark.parametrize(
    "other",
    [
        {"references": ("one", "two", "three")},
        {"references": None, "overrides": ("evaluation.sentences=7", *PRICED)},
    ],
)
def test_runs_evaluated_on_different_sentences_cannot_be_compared_by_bleu(open_run, other):
    found = compare_runs([open_run("a", 26.0), open_run("b", 27.0, **other)], untested)
    assert found["preference"].startswith("Rather a: validation loss 2.700 against 2.700 of b")
    assert "BLEU cannot be compared, because the runs were evaluated on different sentences" in found["preference"]
    assert "BLEU and chrF cannot be compared" in topic(found, "Quality")


def test_other_data_compares_neither_losses_nor_bleu(open_run, tmp_path):
    recorded = [
        replace(event, data_hash="e") if isinstance(event, RunStarted) else event for event in synthetic_run(400)
    ]
    found = compare_runs([open_run("a"), opened(tmp_path / "b", recorded, 29.0, ("other",))], untested)
    assert found["preference"].startswith("No preference: the runs were evaluated on different sentences")
    assert topic(found, "Data").startswith("Different contents. The same: name corpus")
    assert "Validation losses cannot be compared: the data sets differ." in topic(found, "Quality")
    assert not any(row["name"].startswith("validation loss at") for row in found["rows"])


def test_equal_references_make_bleu_comparable_whatever_the_training_data(open_run, tmp_path):
    recorded = [
        replace(event, data_hash="e") if isinstance(event, RunStarted) else event for event in synthetic_run(400)
    ]
    found = compare_runs([open_run("a"), opened(tmp_path / "b", recorded, 29.0, REFERENCES)], p_value(0.01))
    assert found["preference"].startswith("Prefer b: BLEU 29.0 against 20.0 of a")


def test_without_bleu_the_validation_loss_decides(open_run, tmp_path):
    recorded = [
        replace(event, bleu=None, chrf=None) if isinstance(event, EvaluationDone) else event
        for event in synthetic_run(400, valid_loss=lambda step: 2.0)
    ]
    found = compare_runs([open_run("a"), opened(tmp_path / "b", recorded, 0.0, None)], untested)
    assert found["preference"].startswith("Rather b: validation loss 2.000 against 2.700 of a")
    assert found["preference"].endswith("because BLEU was not computed in b.")


def test_a_run_without_an_evaluation_gives_no_preference_yet(open_run):
    runs = [open_run("a"), open_run("b", steps=20, total_steps=400, ended=None, references=None)]
    assert compare_runs(runs, untested)["preference"] == (
        "No preference: no evaluation of b is known. b is still running, so this may change: step 20 of 400."
    )

from dataclasses import replace
from pathlib import Path

from dragoman.events import CheckpointsAveraged
from dragoman.insight.compared_run import name_runs, open_compared_run
from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore

from .conftest import opened
from .synthetic_runs import REFERENCES, synthetic_run


def test_translations_of_another_evaluation_do_not_count(open_run, tmp_path):
    run = open_run("a", 26.0)
    store = TranslationStore(tmp_path / "a" / "translations")
    for stale in (KeptTranslations(40, 26.0, "de", REFERENCES, REFERENCES), replace(run.kept, bleu=25.0)):
        store.keep("best-bleu", stale)
        assert open_compared_run("a", tmp_path / "a", run.history, 0).kept is None


def test_the_translations_of_an_average_belong_to_it(tmp_path):
    recorded = synthetic_run(400)
    averaged = CheckpointsAveraged(
        at_s=recorded[-1].at_s, step=400, names=["a"], nll=1.0, bleu=40.0, chrf=50.0, averaging_s=0.0
    )
    run = opened(tmp_path / "a", [*recorded, averaged], 29.0, REFERENCES)
    assert run.kept is None
    kept = KeptTranslations(400, 40.0, "de", REFERENCES, REFERENCES)
    TranslationStore(tmp_path / "a" / "translations").keep("averaged", kept)
    assert opened(tmp_path / "a", [*recorded, averaged], 29.0, REFERENCES).kept == kept


def test_names_tell_runs_apart(tmp_path):
    assert name_runs([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert name_runs([Path("one/run"), Path("two/run")]) == ["one/run", "two/run"]
    assert name_runs([Path("a"), Path("b"), Path("a"), Path("a")]) == ["a", "b", "a (2)", "a (3)"]

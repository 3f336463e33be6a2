import pytest

from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore


def kept(step: int, bleu: float) -> KeptTranslations:
    return KeptTranslations(step, bleu, "de", ("ein\u2028Satz",), ("kein\nSatz",))


@pytest.fixture
def store(tmp_path) -> TranslationStore:
    return TranslationStore(tmp_path / "translations")


def test_what_is_kept_is_read_back(store):
    store.keep("averaged", kept(10, 2.0))
    assert store.read("averaged") == kept(10, 2.0)
    assert store.read("best-bleu") is None


def test_only_better_translations_of_later_steps_replace_the_best(store):
    for step, bleu in [(10, 2.0), (20, 1.0), (30, 3.0), (40, 3.0)]:
        store.keep_best("best-bleu", kept(step, bleu))
    assert store.read("best-bleu") == kept(30, 3.0)


def test_a_run_that_went_back_forgets_the_best_of_undone_steps(store):
    store.keep_best("best-bleu", kept(30, 3.0))
    store.keep_best("best-bleu", kept(20, 1.0))
    assert store.read("best-bleu") == kept(20, 1.0)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"references": 1, "translations": 2}', '{"step": 1, "colour": 2}', "\udcff"]
)
def test_a_damaged_file_counts_as_missing_and_is_replaced(store, content):
    store.keep("best-bleu", kept(10, 2.0))
    path = store.folder / "best-bleu.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert store.read("best-bleu") is None
    store.keep_best("best-bleu", kept(20, 1.0))
    assert store.read("best-bleu") == kept(20, 1.0)


def test_a_folder_that_cannot_be_written_does_not_stop_training(tmp_path):
    (tmp_path / "file").touch()
    TranslationStore(tmp_path / "file" / "translations").keep("best-bleu", kept(10, 2.0))

import pytest

from dragoman.decoding.one_core_speed import (
    load_on_one_core,
    measure_cpu_s,
    measure_words_per_s,
    search_with_lengths,
)
from dragoman.exporting.exporter import export
from dragoman.model.architecture import architecture_of

from ..models import PAIRS, save_random_model, train_tokenizer


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one-core")
    architecture = architecture_of("student-tiny").replaced(d_model=32, feed_forward=64, encoder_layers=1)
    save_random_model(folder / "model", architecture, train_tokenizer(folder))
    return export(folder / "model", folder / "export", "ctranslate2", "int8")


def test_translations_have_the_lengths_of_the_references(exported):
    translator = load_on_one_core(exported)
    pair = PAIRS[0]
    lengths = []
    translate = translator.runtime.translate_batch

    class Recorder:
        def translate_batch(self, sources, **options):
            lengths.extend(len(found.hypotheses[0]) for found in translate(sources, **options))

    translator.runtime = Recorder()
    search_with_lengths(translator, [pair], beam=1)()
    assert lengths == [len(translator.tokenizer.encode(pair[1])) + 1]


def test_works_alternate_and_the_first_round_is_not_counted():
    calls = []
    times_s = measure_cpu_s({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in times_s.items()} == {"a": 2, "b": 2}


def test_speed_is_in_source_words(exported):
    translator = load_on_one_core(exported, beam=2)
    assert translator.options.beam == 2
    [speed] = measure_words_per_s({"it": translator}, ["one two three"], rounds=1).values()
    assert speed > 0

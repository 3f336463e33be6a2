"""Tables of a data set."""

import io

from rich.console import Console

from dragoman.commands.dataset_table import show_dataset, show_splits
from dragoman.corpus.dataset import DataSet


def test_the_splits_are_shown_with_their_sources(data: DataSet):
    output = io.StringIO()
    show_splits(data, Console(file=output, width=120))
    header, train, valid = output.getvalue().rstrip("\n").split("\n")
    assert header.split() == ["split", "pairs", "text", "source", "tokens", "target", "tokens", "from"]
    assert train.split()[:2] == ["train", "1,500"]
    assert valid.split()[:2] == ["valid", "60"]
    assert valid.rstrip().endswith("valid")


def test_a_data_set_is_shown_with_its_sources_and_lengths(data: DataSet):
    output = io.StringIO()
    show_dataset(data, Console(file=output, width=120))
    for text in ("en to de", "before cleaning", "after cleaning", "en: ", "de: ", "tokens on average"):
        assert text in output.getvalue()

from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman.corpus.dataset import DataSet
from dragoman.distillation.training_text import write_training_text

LINES = ["Ein Test mit Umlauten: äöü ß.", "½ ﬁne １２３ …", "emoji 😀 and a\u00a0space", "日本語 text"]


def test_text_read_back_gives_the_same_tokens(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"all.{language}").write_text(
            "".join(f"{number} {line}\n" for number, line in enumerate(LINES * 9))
        )
    files = [tmp_path / "all.en", tmp_path / "all.de"]
    settings = {"tokenizer.vocabulary_size": 320, "corpus.valid_pairs": 2, "cleaning.rules": ["duplicate"]}
    data = dragoman.prepare(
        files, tmp_path / "data", settings=settings, workers=1, progress=dragoman.no_progress
    ).dataset
    paths = write_training_text(data, tmp_path / "text", dragoman.no_progress)
    sides = [path.read_text().split("\n")[:-1] for path in paths]
    pairs, encode = data.pairs("train"), data.tokenizer.encode
    assert len(sides[0]) == len(sides[1]) == len(pairs)
    for index, texts in enumerate(zip(*sides, strict=True)):
        for text, tokens in zip(texts, pairs[index], strict=True):
            assert encode(text) == tokens.tolist()[:-1]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30))
def test_any_word_survives_a_second_reading(data: DataSet, word: str):
    once = data.tokenizer.decode(data.tokenizer.encode(word))
    assert data.tokenizer.decode(data.tokenizer.encode(once)) == once

"""The corpus that is made of finished shards."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.cleaning import Cleaner
from dragoman.corpus.model_filter import LOWEST_SCORE
from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError
from dragoman.progress_callback import no_progress
from dragoman.settings import CleaningSettings
from dragoman.synthesis.corpus_assembly import CorpusOptions, ScoreRule, assemble
from dragoman.synthesis.shard_store import ShardHeader, StoredCandidate, pack_shard
from dragoman.synthesis.synthesis_folder import SynthesisDescription, SynthesisFolder
from dragoman.synthesis.text_shards import TextSummary
from dragoman.synthesis.translation_job import TranslationJob

SCORES = [([0.9, 0.7], [0.1]), ([0.8], [-0.2, 0.3])]
"""Samples of real and of mismatched pairs, of two shards."""


@pytest.fixture
def folder(tmp_path: Path) -> SynthesisFolder:
    folder = SynthesisFolder(tmp_path)
    folder.shards.open()
    for number, scores in enumerate(SCORES):
        lines = [("The dog sleeps.", [StoredCandidate("Der Hund schläft.", -0.4, 0.8)]),
                 (f"The house {number} is old.", [StoredCandidate("Vielen Dank dafür.", -0.3, 0.2)])]  # fmt: skip
        header = ShardHeader(number, 2 * number, 2, "here", "CPU", 1.0, *scores)
        folder.shards.write(number, pack_shard(header, lines))
    return folder


def describe(backward: str | None) -> SynthesisDescription:
    text = TextSummary("text.en", 1, 4, "")
    return SynthesisDescription(
        "model", "", Languages("en", "de"), (text,), TranslationJob("cpu", {}), 2, backward=backward
    )


def test_the_threshold_lies_between_real_and_mismatched_pairs_of_all_shards(folder: SynthesisFolder) -> None:
    assert ScoreRule.find(CleaningSettings(), folder, describe("backward")) == ScoreRule("agreement", 0.7)
    assert ScoreRule.find(CleaningSettings(min_score=0.5), folder, describe("backward")).min_score == 0.5
    assert ScoreRule.find(CleaningSettings(rules="-agreement"), folder, describe("backward")) is None


def test_scores_of_the_search_need_a_threshold_of_the_settings(folder: SynthesisFolder) -> None:
    assert ScoreRule.find(CleaningSettings(), folder, describe(None)) is None
    assert ScoreRule.find(CleaningSettings(min_score=-2.0), folder, describe(None)) == ScoreRule("score", -2.0)


def test_without_samples_nothing_is_dropped(folder: SynthesisFolder) -> None:
    for number in range(2):
        header = ShardHeader(number, 2 * number, 2, "here", "CPU", 1.0)
        folder.shards.write(number, pack_shard(header, []))
    assert ScoreRule.find(CleaningSettings(), folder, describe("backward")).min_score == LOWEST_SCORE


def test_pairs_with_low_scores_are_dropped_after_those_that_rules_about_text_drop(folder: SynthesisFolder) -> None:
    made = assemble(folder, describe("backward"), CorpusOptions(cleaning=CleaningSettings()), no_progress)
    assert (made["kept_pairs"], made["min_score"]) == (2, 0.7)
    assert made["dropped"] == {
        "agreement": {
            "pairs": 2,
            "examples": [(f"The house {number} is old.", "Vielen Dank dafür.", 0.2) for number in range(2)],
        }
    }
    short = CorpusOptions(cleaning=CleaningSettings(max_words=3))
    assert list(assemble(folder, describe("backward"), short, no_progress)["dropped"]) == ["words"]


@pytest.mark.parametrize(
    "tag",
    ["<BT>\n", "\udcff", "  ", " ", "a b", "a\tb", "\x00", "a\u200b", "\u2028", "\xa0", "e\u0301", "e" + 40 * "\u0323"],
)
def test_a_tag_that_is_no_word_is_refused(tag: str) -> None:
    with pytest.raises(DragomanError, match=r"^--tag '.*' is not a word: "):
        CorpusOptions(tag=tag)


@given(st.text(st.characters(), min_size=1))
def test_a_tag_stays_one_word_in_front_of_a_line_however_it_is_normalized(tag: str) -> None:
    with contextlib.suppress(DragomanError):
        line = f"{CorpusOptions(tag=tag).tag} Der Hund schläft."
        assert line.encode().decode().splitlines() == [line]
        assert line.split() == [tag, "Der", "Hund", "schläft."]
        assert Cleaner(CleaningSettings(), Languages("en", "de")).normalize("The dog sleeps.", line)[1] == line


def test_tags_as_they_are_used_are_words() -> None:
    for tag in ("", "<BT>", "▁syn", "2de", "⟦BT⟧", "é"):
        assert CorpusOptions(tag=tag).tag == tag

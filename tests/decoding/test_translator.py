"""Text in, text out: whatever the lines, as many come back, in order, each of them one line."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import dragoman
from dragoman.batching.packing import Packed, pack_sentences
from dragoman.corpus import demo
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer, count_words, train
from dragoman.decoding import translator as translator_module
from dragoman.decoding.beam_search import Hypothesis, search
from dragoman.decoding.line_translator import LONGEST_PIECE, batches, one_line, split, tidy
from dragoman.decoding.translator import GPU_BATCH_TOKENS, Translator, find_model, marks_of, tokens_at_once
from dragoman.errors import DragomanError, SettingsError
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings, TokenizerSettings

PAIRS = demo.generate(300, seed=5, valid=1, test=1).train
LINES = [english for english, _ in PAIRS]
ODD_LINES = [
    "", " ", "\t\u3000 ", "\n", "\r\n", "\x00", "a\x00b", "\ud800", "x\udfffy", "\u2028", "\u200b", "\x1c\x1d\x1e",
    "one\u2028two\u0085three\x0bfour", "\ufeffwith a mark", "▁", "▁▁ ▁", "<s></s><pad><unk>", "...", "🐪🐪👩‍👩‍👧",
    "日本語。", "e\u0301" * 40, "½ ﬁ Ⅳ",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train(count_words([side for pair in PAIRS for side in pair]), TokenizerSettings(vocabulary_size=500), path)
    return Tokenizer.load(path)


def random_model(tokenizer: Tokenizer) -> Transformer:
    """Says anything, bytes of line ends included, and ends soon."""
    torch.manual_seed(3)
    model = Transformer(
        Architecture(
            vocabulary=tokenizer.padded_vocab_size,
            d_model=32,
            heads=4,
            encoder_layers=1,
            decoder_layers=1,
            feed_forward=64,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        direction = model.decoder_norm.bias / model.decoder_norm.bias.norm()
        model.embedding.weight[tokenizer.eos_id] += 0.8 * direction
        model.embedding.weight *= 0.5
        for piece in ("<0x0A>", "<0x0D>", "<0x00>"):
            model.embedding.weight[tokenizer.pieces.index(piece)] += direction
    return model


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return Translator(random_model(tokenizer), tokenizer, DecodingSettings(beam=2, max_length_ratio=0.2))


def is_one_line(text: str) -> bool:
    return len(text.splitlines()) <= 1 and text.splitlines() == ([text] if text else [])


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.text(st.characters(codec=None), max_size=30) | st.sampled_from(ODD_LINES), max_size=6))
def test_as_many_lines_come_out_as_go_in(translator: Translator, lines: list[str]) -> None:
    translated = translator.translate(lines)
    assert len(translated) == len(lines)
    assert all(map(is_one_line, translated))
    for line, translation in zip(lines, translated, strict=True):
        translation.encode("utf-8")
        if not line.strip():
            assert translation == ""


def test_odd_lines_come_out_as_one_line_each(translator: Translator) -> None:
    translated = translator.translate(ODD_LINES)
    assert len("\n".join(translated).split("\n")) == len(ODD_LINES)
    assert all(map(is_one_line, translated))
    unmended = [translator.tokenizer.decode(found.tokens) for found in spoken(translator, LINES[:40])]
    assert not all(map(is_one_line, unmended)), "else this shows nothing: the model says line ends"


def spoken(translator: Translator, lines: list[str]) -> list[Hypothesis]:
    end, vocabulary = translator.tokenizer.eos_id, translator.model.architecture.vocabulary
    source = pack_sentences([[*translator.tokenizer.encode(line), end] for line in lines])
    found = search(translator.model, source, translator.options, marks_of(translator.tokenizer, vocabulary))
    return [best for [best] in found]


def test_the_order_is_kept_and_each_line_is_translated_as_if_alone(translator: Translator) -> None:
    lines = [*LINES[:12], "", LINES[0], *LINES[12:20]]
    together = translator.translate(lines)
    assert together == [translator.translate([line])[0] for line in lines]
    assert len(set(together)) > 5, "else this shows nothing"
    assert translator.translate([]) == []


def test_a_line_without_words_is_not_given_to_the_model(tokenizer: Tokenizer) -> None:
    translator = Translator(random_model(tokenizer), tokenizer, DecodingSettings())
    translator.model.start_decoding = None  # type: ignore[assignment, method-assign]
    assert translator.translate(["", "  ", "\x00\u200b"]) == ["", "", ""]


def test_n_best_are_sorted_and_read_differently(translator: Translator) -> None:
    wide = Translator(translator.model, translator.tokenizer, DecodingSettings(beam=5, max_length_ratio=0.2))
    most = 0
    for line, found in zip(LINES[:8], wide.translate_scored(LINES[:8], n_best=5), strict=True):
        texts = [found.text, *(other.text for other in found.alternatives)]
        scores = [found.score, *(other.score for other in found.alternatives)]
        assert len(texts) <= 5
        assert len(set(texts)) == len(texts)
        assert scores == sorted(scores, reverse=True)
        assert wide.translate([line]) == [found.text]
        most = max(most, len(texts))
    assert most > 3


def test_a_stream_looks_only_so_far_ahead(translator: Translator) -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in LINES[:20]:
            taken += 1
            yield line

    stream = translator.translate_stream(lines(), look_ahead=4)
    first = next(stream)
    assert taken == 4
    assert [first.text, *(translation.text for translation in stream)] == translator.translate(LINES[:20])


def test_one_text_in_place_of_a_list_is_a_mistake(translator: Translator) -> None:
    with pytest.raises(TypeError, match="in brackets"):
        translator.translate("Hello.")


@pytest.mark.parametrize(
    "text",
    [
        " ".join(LINES),
        " ".join(LINES).replace(".", ","),
        " ".join(LINES).replace(".", "").replace(",", ""),
        "x" * 3000,
        "猫がいる。" * 200,
        "🐪" * 300,
    ],
    ids=["sentences", "clauses", "words", "no spaces", "no spaces but full stops", "bytes"],
)
def test_long_lines_are_cut_into_pieces_and_nothing_is_lost(tokenizer: Tokenizer, text: str) -> None:
    pieces = split(text, lambda part: len(tokenizer.encode(part)), LONGEST_PIECE)
    assert len(pieces) > 1
    assert "".join(piece.text + piece.glue for piece in pieces) == text
    sizes = [len(tokenizer.encode(piece.text)) for piece in pieces]
    assert max(sizes) <= LONGEST_PIECE + 4
    assert sum(sizes) / len(sizes) > LONGEST_PIECE / 3, "no more pieces than needed"


def test_long_lines_are_cut_at_the_best_place() -> None:
    def words(text: str) -> int:
        return len(text.split())

    text = "One two three. Four five, six seven. Eight (nine?) Ten."
    assert [piece.text for piece in split(text, words, 5)] == [
        "One two three.",
        "Four five, six seven.",
        "Eight (nine?) Ten.",
    ]
    assert [piece.text for piece in split("a b, c d e f g", words, 3)] == ["a b,", "c d e", "f g"]
    assert split("short", words, 5)[0].glue == ""
    assert split("", words, 5) == []


def test_a_very_long_line_becomes_one_line(translator: Translator) -> None:
    [found] = translator.translate_scored([" ".join(LINES[:90])], n_best=2)
    assert is_one_line(found.text)
    assert found.text.count(" ") > 0


def test_text_is_tidied_before_and_after() -> None:
    assert tidy(" a\u2028b\x00\t c\ud800 ") == "a b c\ufffd"
    assert one_line("a\n\rb\u2028\x85c\x0b\x0c ") == "a b c"


def test_batches_hold_each_source_once_and_no_more_than_fits() -> None:
    sources = [tuple(range(length)) for length in (3, 9, 1, 30, 4, 4, 2)]
    made = list(batches(sources, 16))
    assert sorted(source for batch in made for source in batch) == sorted(sources)
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= 16 for batch in made)
    assert [len(source) for batch in made for source in batch] == [30, 9, 4, 4, 3, 2, 1]


def test_a_batch_that_does_not_fit_into_memory_is_searched_in_halves(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [" ".join(["word"] * (number % 7 + 1)) + f" {number}" for number in range(40)]
    expected = translator.translate(lines)
    sizes: list[int] = []

    def search_in_little_memory(model: Transformer, source: Packed, *rest: Any) -> list[list[Hypothesis]]:
        sizes.append(source.layout.sentences)
        if source.layout.sentences > 6:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return search(model, source, *rest)

    def refuse(*_: Any) -> list[list[Hypothesis]]:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(translator_module, "search", search_in_little_memory)
    assert translator.translate(lines) == expected
    assert max(sizes) > 6
    assert sum(size for size in sizes if size <= 6) == 40
    monkeypatch.setattr(translator_module, "search", refuse)
    with pytest.raises(DragomanError, match=r"lower decoding\.beam"):
        translator.translate(lines)


def test_a_gpu_takes_as_much_at_once_as_its_memory_allows() -> None:
    base = Architecture(
        vocabulary=32768, d_model=512, heads=8, encoder_layers=6, decoder_layers=6, feed_forward=2048
    )  # fmt: skip
    sizes = [tokens_at_once(base, DecodingSettings(beam=4), gigabytes * 2**30) for gigabytes in (8, 16, 141)]
    assert sizes == sorted(sizes)
    assert 8192 < sizes[0] < 16384
    assert sizes[-1] == GPU_BATCH_TOKENS
    assert tokens_at_once(base, DecodingSettings(beam=8), 8 * 2**30) == sizes[0] // 2


def test_marks_leave_nothing_to_say_but_pieces(tokenizer: Tokenizer) -> None:
    marks = marks_of(tokenizer, tokenizer.padded_vocab_size)
    assert (marks.start, marks.end) == (2, 3)
    assert marks.forbidden == (0, 1, 2, *range(tokenizer.vocab_size, tokenizer.padded_vocab_size))


def save(translator: Translator, folder: Path) -> None:
    folder.mkdir(parents=True)
    model = translator.model
    ModelDescription(model.architecture, Languages("en", "de"), translator.options, translator.tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)


def test_a_run_a_checkpoint_and_a_model_can_be_loaded(translator: Translator, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(DragomanError, match="check the path"):
        find_model(run)
    (run / "checkpoints").mkdir(parents=True)
    with pytest.raises(DragomanError, match="There is no model in"):
        dragoman.load(run)
    for better in ("last", "best-loss", "best-bleu", "averaged"):
        save(translator, run / "checkpoints" / better)
        assert find_model(run) == find_model(run / "checkpoints") == run / "checkpoints" / better
    expected = translator.translate(LINES[:5])
    for path in (run, run / "checkpoints" / "last"):
        loaded = dragoman.load(path, "cpu")
        assert loaded.translate(LINES[:5]) == expected
        assert loaded.options == translator.options
        assert loaded.languages == Languages("en", "de")
    assert dragoman.load(str(run), "cpu", beam=7).options.beam == 7
    with pytest.raises(SettingsError, match=r"decoding\.beam = 0"):
        dragoman.load(run, "cpu", beam=0)


def test_importing_dragoman_does_not_import_torch() -> None:
    code = "import sys, dragoman; dragoman.load; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

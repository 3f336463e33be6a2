"""Imported models, fine-tuned and exported again: the same text in CTranslate2, transformers and Argos."""

import json
from pathlib import Path
from zipfile import ZipFile

import ctranslate2
import pytest
import sentencepiece
from benchmarks.fine_tuning import load_peer, train_and_export
from benchmarks.foreign_models import make_m2m100, make_marian, make_nllb

import dragoman
from dragoman.decoding.alignment import align
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.exporting.export_summary import describe_export, is_export
from dragoman.exporting.exporter import export

from ..models import LINES, PAIRS
from ..shared_folder import shared_folder

MAKERS = {"marian": make_marian, "m2m100": make_m2m100, "nllb": make_nllb}
families = pytest.mark.parametrize("name", MAKERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        for name, maker in MAKERS.items():
            maker(folder / name, PAIRS)

    return shared_folder(tmp_path_factory, "foreign-exports", make)


@families
def test_after_some_steps_exports_translate_as_the_run(folders: Path, name: str, tmp_path: Path) -> None:
    same = train_and_export(folders / name, LINES, tmp_path)
    assert same == {"CTranslate2": len(LINES), "Hugging Face": len(LINES)}


@families
def test_an_export_for_transformers_is_a_folder_like_the_imported_one(folders: Path, name: str, tmp_path: Path) -> None:
    folder = export(Path(f"en-de={folders / name}"), tmp_path / "export", "huggingface")
    assert is_export(folder)
    assert describe_export(folder)["files"]["model.safetensors"]["bytes"] > 0
    _, pieces = load_peer(folder)
    original = dragoman.load(f"en-de={folders / name}", "cpu", beam=1)
    again = dragoman.load(folder, "cpu", beam=1)  # It states its direction.
    assert again.tokenizer.encodes_like(original.tokenizer)
    assert again.translate(LINES) == original.translate(LINES)
    encoded = [[*again.tokenizer.source_prefix, *again.tokenizer.encode(line), pieces.eos_token_id] for line in LINES]
    assert pieces(LINES).input_ids == encoded


@families
def test_search_scores_alignments_and_prefixes_agree_with_ctranslate2(folders: Path, name: str, tmp_path: Path) -> None:
    model = f"en-de={folders / name}"
    ours = dragoman.load(model, "cpu", beam=1)
    theirs = CTranslate2Translator.load(export(Path(model), tmp_path / "export", "ctranslate2", "float32"), beam=1)
    assert theirs.translate(LINES) == ours.translate(LINES)
    tokenizer = ours.tokenizer
    pairs = [((*tokenizer.encode(en), tokenizer.eos_id), tokenizer.encode(de, "target")) for en, de in PAIRS[:5]]
    for own, other, (source, target) in zip(ours.attention(pairs), theirs.attention(pairs), pairs, strict=True):
        assert own.shape == other.shape == (len(target), len(source) - 1)
        assert abs(own - other).max() < 1e-4
    assert [len(values) for values in theirs.log_probabilities(pairs)] == [len(target) + 1 for _, target in pairs]
    begun = theirs.search_from([(source, target[:2]) for source, target in pairs])
    assert [found.tokens[:2] for found in begun] == [target[:2] for _, target in pairs]
    assert len(align(ours, PAIRS[:3])) == 3


@pytest.mark.parametrize("name", ["marian", "m2m100"])
def test_argos_makes_the_same_text(folders: Path, name: str, tmp_path: Path) -> None:
    """With the calls of argostranslate.translate.apply_packaged_translation and its tokenizer."""
    model = Path(f"en-de={folders / name}")
    with ZipFile(export(model, tmp_path / "en_de.argosmodel", "argos", "float32")) as archive:
        archive.extractall(tmp_path / "package")
    [package] = (tmp_path / "package").iterdir()
    prefix = json.loads((package / "metadata.json").read_text()).get("target_prefix", "")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(package / "model"))
    results = translator.translate_batch(
        [pieces.encode(line, out_type=str) for line in LINES],
        target_prefix=[[prefix]] * len(LINES) if prefix else None,
        replace_unknowns=True,
        beam_size=1,
    )
    texts = ["".join(result.hypotheses[0]).replace("▁", " ").removeprefix(prefix).strip() for result in results]
    ours = dragoman.load(model, "cpu", beam=1, max_length_ratio=100.0).translate(LINES)
    # CTranslate2 by itself generates at least one token, and at most 256.
    begun = [(text[:200], other[:200]) for text, other in zip(ours, texts, strict=True) if text]
    assert begun
    assert [text for text, _ in begun] == [other for _, other in begun]

"""A model that leaves says the same elsewhere: in CTranslate2, in Hugging Face's transformers, and back here."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece
import torch

import dragoman
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding import beam_search
from dragoman.decoding.ctranslate2_translator import CARD_FILE, EXTRA_LENGTH, ExportedTranslator
from dragoman.decoding.translator import Translator
from dragoman.errors import DragomanError
from dragoman.export.exporter import FORMS, export
from dragoman.export.model_card import Circumstances
from dragoman.launch import local_launcher
from dragoman.model.model_folder import WEIGHTS_FILE
from dragoman.recipe import recipe_names
from dragoman.training.worker import TrainingJob

from ..command_line import run_command
from ..models import LINES, learned, saved, slim
from ..training.conftest import tiny

ODD_LINES = ["", " ", "two  spaces", "日本語。", "🐪 a camel", "ﬁ ½ Ⅳ", " before", "after ", "naïve café", "x ▁ y"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def any_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return learned(tmp_path_factory.mktemp("tokenizer"), request.param)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return learned(tmp_path_factory.mktemp("tokenizer"), "bpe")


def said_by(translator: Translator | ExportedTranslator, n_best: int = 1) -> list[list[int]]:
    tokenizer = translator.tokenizer
    sources = [(*tokenizer.encode(line), tokenizer.eos_id) for line in LINES]
    found = translator.search(sources, n_best)
    return [found[source][0].tokens for source in sources]


@pytest.mark.parametrize("recipe", recipe_names())
def test_ctranslate2_says_token_by_token_what_we_say(recipe: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim(recipe), tokenizer)
    ours = dragoman.load(model, "cpu")
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    assert isinstance(theirs, ExportedTranslator)
    assert said_by(theirs) == said_by(ours)
    assert len({tuple(tokens) for tokens in said_by(ours)}) > 10, "else this shows nothing"


@pytest.mark.parametrize("changes", [{"bias": False}, {"norm": "rmsnorm"}, {"activation": "swiglu"}])
def test_so_it_does_for_parts_that_no_recipe_has_alone(
    changes: dict[str, object], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model", slim("tiny").replaced(**changes), tokenizer)
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    assert said_by(theirs) == said_by(dragoman.load(model, "cpu"))


def test_ctranslate2_alone_needs_no_more_than_the_folder(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer)
    folder = export(model, tmp_path / "exported", "ctranslate2", "float32")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    plain = ctranslate2.Translator(str(folder), "cpu")
    results = plain.translate_batch(pieces.encode(LINES, out_type=str), beam_size=1, max_decoding_length=12)
    ours = said_by(dragoman.load(model, "cpu"))
    assert [result.hypotheses[0] for result in results] == [
        [tokenizer.pieces[token] for token in tokens[:12]] for tokens in ours
    ]


def test_the_length_penalty_is_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer, ending=2.0, beam=4)
    folder = export(model, tmp_path / "exported", "ctranslate2", "float32")
    penalised, plain = (dragoman.load(folder, "cpu", alpha=alpha) for alpha in (0.6, 0.0))
    source = (*tokenizer.encode(LINES[0]), tokenizer.eos_id)
    best = penalised.search([source], 4)[source]
    assert [found.score for found in best] == sorted((found.score for found in best), reverse=True)
    unpenalised = {tuple(found.tokens): found.score for found in plain.search([source], 4)[source]}
    shared = [found for found in best if tuple(found.tokens) in unpenalised]
    assert len({len(found.tokens) for found in shared}) > 1, "else this shows nothing"
    for found in shared:
        penalty = beam_search.length_penalty(len(found.tokens) + 1, 0.6)
        assert found.score == pytest.approx(unpenalised[tuple(found.tokens)] / penalty, rel=1e-4)
    assert EXTRA_LENGTH == beam_search.EXTRA_LENGTH


def test_how_likely_each_token_is_adds_up_to_the_score(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer, ending=2.0, alpha=0.0, beam=2)
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    source = (*tokenizer.encode(LINES[3]), tokenizer.eos_id)
    best = theirs.search([source], 1)[source][0]
    [likely] = theirs.log_probabilities([(source, best.tokens)])
    assert len(likely) == len(best.tokens) + 1, "the end mark has one too"
    assert sum(likely) == pytest.approx(best.score, rel=1e-4)


@pytest.mark.parametrize("quantization", ["int8", "int8_float32", "int16", "float16", "bfloat16"])
def test_every_quantization_translates_and_is_smaller(quantization: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("transformer-base"), tokenizer)
    folder = export(model, tmp_path / "exported", "ctranslate2", quantization)
    assert (folder / "model.bin").stat().st_size < 0.6 * (model / WEIGHTS_FILE).stat().st_size
    assert len(dragoman.load(folder, "cpu").translate(LINES)) == len(LINES)


def test_transformers_loads_it_and_says_the_same(any_tokenizer: Tokenizer, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = saved(tmp_path / "model", slim("transformer-base"), any_tokenizer)
    folder = str(export(model, tmp_path / "exported", "huggingface"))
    theirs, pieces = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ours = dragoman.load(model, "cpu")
    for line in [*LINES, *ODD_LINES]:
        expected = [*any_tokenizer.encode(line), any_tokenizer.eos_id]
        assert pieces(line).input_ids == expected
        assert pieces.decode(expected, skip_special_tokens=True) == any_tokenizer.decode(expected)
    batch = pieces(LINES, return_tensors="pt", padding=True)
    made = theirs.generate(**batch, num_beams=1, max_new_tokens=12)
    assert [row[1:13] for row in made.tolist()] == [
        [*tokens, any_tokenizer.eos_id, *[any_tokenizer.pad_id] * 12][:12] for tokens in said_by(ours)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_what_was_exported_can_be_loaded_here(form: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer, beam=3)
    quantization = "float32" if form == "ctranslate2" else None
    folder = export(model, tmp_path / "exported", form, quantization)
    loaded = dragoman.load(folder, "cpu", beam=1)
    assert loaded.languages == Languages("en", "de")
    assert loaded.translate(LINES) == dragoman.load(model, "cpu", beam=1).translate(LINES)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")], "no draft is left"


def test_lines_of_any_length_come_out_of_an_export_one_for_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer, ending=2.0, beam=2)
    translator = dragoman.load(export(model, tmp_path / "exported", "ctranslate2"), "cpu")
    lines = [*ODD_LINES, " ".join(LINES * 3), LINES[0]]
    found = translator.translate_scored(lines, n_best=2)
    assert len(found) == len(lines)
    assert found[0].text == found[1].text == ""
    assert found[-1].alternatives


@pytest.mark.parametrize(
    ("form", "changes", "reason"),
    [
        ("huggingface", {"positions": "rotary"}, r"model\.positions = rotary .* ctranslate2 or safetensors"),
        ("huggingface", {"norm": "rmsnorm", "bias": False}, r"model\.norm = rmsnorm .*; model\.bias = False"),
        ("ctranslate2", {"qk_norm": True}, r"model\.qk_norm = true: export to safetensors"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_a_reason(
    form: str, changes: dict[str, object], reason: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model", slim("tiny").replaced(**changes), tokenizer)
    with pytest.raises(DragomanError, match=reason):
        export(model, tmp_path / "exported", form)
    assert [file.name for file in tmp_path.iterdir()] == ["model"], "nothing is left behind"


def test_an_export_replaces_only_another_export(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer)
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DragomanError, match="choose another --out"):
            export(model, out, "safetensors", overwrite=overwrite)
    shutil.rmtree(out)
    export(model, out, "safetensors")
    with pytest.raises(DragomanError, match="--overwrite"):
        export(model, out, "ctranslate2")
    export(model, out, "ctranslate2", overwrite=True)
    assert not (out / WEIGHTS_FILE).exists()
    with pytest.raises(DragomanError, match="export already"):
        export(out, tmp_path / "again", "ctranslate2")
    with pytest.raises(DragomanError, match="is for ctranslate2"):
        export(model, tmp_path / "again", "safetensors", "int8")


def test_a_damaged_export_is_a_sentence(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", slim("tiny"), tokenizer)
    folder = export(model, tmp_path / "out", "ctranslate2")
    (folder / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(DragomanError, match="export the model again"):
        dragoman.load(folder)


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert local_launcher.train(TrainingJob(tiny("checkpoint.average=2"), data.path, folder, 1), 1) == "finished"
    return folder


def test_the_card_tells_what_the_run_recorded(run: Path, data: DataSet, tmp_path: Path) -> None:
    card = (export(run, tmp_path / "out", "ctranslate2", None, Circumstances(data, 3600.0)) / CARD_FILE).read_text()
    manifest = data.manifest
    assert manifest.identity in card
    assert f"{manifest.splits['train'].pairs:,} pairs" in card
    assert "BLEU" in card
    assert "|version:" in card, "the signature of the score"
    assert "average of 2 checkpoints" in card
    assert "12 |" in card
    assert "dollars" in card
    assert "| workers | 1 on 1 machine |" in card
    assert "| hardware | CPU; fp32 |" in card
    assert "int8" in card
    assert "demo" in card


def test_the_card_invents_nothing(run: Path, data: DataSet, tokenizer: Tokenizer, tmp_path: Path) -> None:
    card = (export(run, tmp_path / "out", "safetensors") / CARD_FILE).read_text()
    assert data.manifest.identity in card
    assert "licences are not known" in card
    assert "| cost | not known |" in card
    strange = saved(tmp_path / "model", slim("tiny"), tokenizer)
    card = (export(strange, tmp_path / "strange", "safetensors") / CARD_FILE).read_text()
    assert card.count("ot known") >= 4


def test_the_card_refuses_another_data_set(run: Path, data: DataSet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data.path, other)
    manifest = (other / "manifest.json").read_text().replace(data.manifest.identity, "0" * 64)
    (other / "manifest.json").write_text(manifest)
    with pytest.raises(DragomanError, match="give the --data it had"):
        export(run, tmp_path / "out", "safetensors", None, Circumstances(DataSet(other)))
    assert not (tmp_path / "out").exists()


def test_the_command_exports_and_translate_takes_it(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_command("export", str(run), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "is ready" in done.stdout
    shown = run_command("inspect", str(out), "--json")
    assert json.loads(shown.stdout)["files"]["model.bin"] == (out / "model.bin").stat().st_size
    lines = "".join(f"{line}\n" for line in LINES[:3])
    done = run_command("translate", str(out), stdin=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
    for wrong in (["--to", "onnx"], ["--quantization", "int3"]):
        done = run_command("export", str(run), "--out", str(out), *wrong)
        assert done.returncode == 2
        assert "is not known: use" in done.stderr


def test_loading_an_export_leaves_torch_its_threads(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = export(saved(tmp_path / "model", slim("tiny"), tokenizer), tmp_path / "out", "ctranslate2")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        dragoman.load(folder, "cpu").translate(LINES[:2])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_export_runs_without_torch(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = export(saved(tmp_path / "model", slim("tiny"), tokenizer), tmp_path / "out", "ctranslate2")
    code = (
        "import sys, pathlib; from dragoman.decoding.ctranslate2_translator import ExportedTranslator as E;"
        f"E.load(pathlib.Path({str(folder)!r}), 'cpu').translate(['Hello.']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

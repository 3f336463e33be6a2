"""Translation on torch: memory, batch sizes, and models that can be loaded."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import dragoman
from dragoman.batching.packed_batch import Packed
from dragoman.corpus.sources import Languages
from dragoman.decoding.sampling import LineSampler, SamplingSettings
from dragoman.decoding.translator import GPU_BATCH_TOKENS, Translator, gpu_batch_tokens
from dragoman.errors import DragomanError, SettingsError
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.out_of_memory import FittingSize
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

from ..models import LINES


def token_pairs(translator: Translator, lines: Sequence[str]) -> list[tuple[tuple[int, ...], list[int]]]:
    encoded = [translator.tokenizer.encode(line) for line in lines]
    return [((*tokens, translator.tokenizer.eos_id), tokens[::-1]) for tokens in encoded]


WORK: dict[str, Callable[[Translator, Sequence[str]], list[Any]]] = {
    "search": lambda translator, lines: translator.translate(lines),
    "samples": lambda translator, lines: [
        [each.text for each in found]
        for found in LineSampler(translator, SamplingSettings()).sample(lines, first_line=0, count=2)
    ],
    "attention": lambda translator, lines: translator.attention(token_pairs(translator, lines)),
    "scores": lambda translator, lines: translator.log_probabilities(token_pairs(translator, lines)),
}


@pytest.mark.parametrize("kind", WORK)
def test_a_batch_that_does_not_fit_into_memory_is_computed_in_halves(
    kind: str, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FittingSize, "RETRY_AFTER", 2)
    options = DecodingSettings(beam=2, max_length_ratio=0.1)
    translator = Translator(translator.model, translator.tokenizer, options)
    lines = [" ".join(["word"] * (number % 3 + 1)) + f" {number}" for number in range(12)]
    expected = WORK[kind](translator, lines)
    encode, most, sizes = Transformer.encode, 3, list[int]()

    def encode_in_little_memory(model: Transformer, source: Packed) -> torch.Tensor:
        sizes.append(source.layout.sentences)
        if source.layout.sentences > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return encode(model, source)

    monkeypatch.setattr(Transformer, "encode", encode_in_little_memory)
    for ours, theirs in zip(WORK[kind](translator, lines), expected, strict=True):
        assert ours == (pytest.approx(theirs, abs=1e-5) if kind in ("attention", "scores") else theirs)
    whole = max(sizes)
    assert whole > most
    most = 0
    with pytest.raises(DragomanError, match=r"lower decoding\.beam"):
        WORK[kind](translator, lines)
    most = whole
    for _ in range(10):
        WORK[kind](translator, lines)
    sizes.clear()
    WORK[kind](translator, lines)
    assert max(sizes) == whole, "there is memory again"


def test_the_batch_size_on_a_gpu_depends_on_its_memory() -> None:
    base = Architecture(
        vocabulary=32768, d_model=512, heads=8, encoder_layers=6, decoder_layers=6, feed_forward=2048
    )  # fmt: skip
    sizes = [gpu_batch_tokens(base, DecodingSettings(beam=4), gigabytes * 2**30) for gigabytes in (8, 16, 141)]
    assert sizes == sorted(sizes)
    assert 8192 < sizes[0] < 16384
    assert sizes[-1] == GPU_BATCH_TOKENS
    assert gpu_batch_tokens(base, DecodingSettings(beam=8), 8 * 2**30) == sizes[0] // 2


def save(translator: Translator, folder: Path) -> None:
    folder.mkdir(parents=True)
    model = translator.model
    ModelDescription(model.architecture, Languages("en", "de"), translator.options, translator.tokenizer).write(folder)
    save_file(model.state_dict(), folder / WEIGHTS_FILE)


def test_runs_checkpoints_and_models_can_be_loaded(translator: Translator, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    with pytest.raises(DragomanError, match="There is no model in"):
        dragoman.load(run)
    for better in ("last", "best-loss", "best-bleu", "averaged"):
        save(translator, run / "checkpoints" / better)
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

"""Larger students, measured before anybody trains them: the speed and size of a model do not depend on its weights."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from safetensors.torch import save_file

from dragoman.decoding.one_core_speed import load_on_one_core, measure_cpu_s, search_with_lengths
from dragoman.exporting.exporter import export, file_sizes
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription
from dragoman.model.transformer import Transformer

MEASURED_PAIRS = 64


@dataclass(frozen=True)
class VariantCost:
    """A model against another, both in int8."""

    time_ratio: float
    size_bytes: int


def larger_students(architecture: Architecture) -> dict[str, Architecture]:
    """The students that would come next: a layer more, or wider ones."""
    layers = architecture.decoder_layers + 1
    width = architecture.d_model * 3 // 2 // (2 * architecture.heads) * (2 * architecture.heads)
    return {
        f"{layers} decoder layers": architecture.replaced(decoder_layers=layers),
        f"{2 * architecture.encoder_layers} encoder layers": architecture.replaced(
            encoder_layers=2 * architecture.encoder_layers
        ),
        f"width {width}": architecture.replaced(d_model=width, feed_forward=architecture.feed_forward * 3 // 2),
    }


def measure_variants(
    description: ModelDescription, variants: Mapping[str, Architecture], pairs: Sequence[tuple[str, str]], beam: int
) -> dict[str, VariantCost]:
    """Time and size of variants of a model, on one core, for translations as long as the references."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"": description.architecture, **variants}
        exports = {
            name: export_random(replace(description, architecture=architecture), Path(folder) / str(number))
            for number, (name, architecture) in enumerate(names.items())
        }
        works = {
            name: search_with_lengths(load_on_one_core(path), pairs[:MEASURED_PAIRS], beam)
            for name, path in exports.items()
        }
        times_s = measure_cpu_s(works)
        return {
            name: VariantCost(
                median(own / base for own, base in zip(times_s[name], times_s[""], strict=True)),
                sum(file_sizes(exports[name]).values()),
            )
            for name in variants
        }


def export_random(description: ModelDescription, folder: Path) -> Path:
    """The int8 export of a model with random weights. Returns its folder."""
    model, out = folder / "model", folder / "export"
    model.mkdir(parents=True)
    description.write(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        save_file(Transformer(description.architecture).state_dict(), model / WEIGHTS_FILE)
    return export(model, out, "ctranslate2", "int8")

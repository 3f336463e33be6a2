"""Import of models from folders of transformers: MarianMT (OPUS-MT), M2M100 and NLLB. No code of theirs is run."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from dragoman.corpus.foreign_tokenizer import ForeignTokenizer
from dragoman.corpus.huggingface_folder import CONFIG_FILE, HuggingFaceFolder
from dragoman.corpus.huggingface_tokenizer import MAX_ROWS, read_tokenizer
from dragoman.corpus.sources import Languages
from dragoman.model.architecture import Architecture
from dragoman.model.finite_weights import find_not_finite
from dragoman.model.huggingface_weights import (
    HUGGINGFACE_WEIGHTS_FILE,
    SHARED_EMBEDDING,
    TIED_EMBEDDINGS,
    TIED_OR_COMPUTED,
    from_huggingface,
    weight_shapes,
)
from dragoman.settings import DecodingSettings

_PICKLED_FILE = "pytorch_model.bin"
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
_SCALES_BY_DEFAULT = {"marian": False, "m2m_100": True}
_SIZES = {
    "d_model": ("d_model", 16384),
    "encoder_layers": ("encoder_layers", 200),
    "decoder_layers": ("decoder_layers", 200),
    "encoder_attention_heads": ("heads", 256),
    "encoder_ffn_dim": ("feed_forward", 131072),
    "vocab_size": ("vocabulary", MAX_ROWS),
}
"""Sizes of a configuration, with our names and the largest that are supported."""
_SAME_ON_BOTH_SIDES = ("attention_heads", "ffn_dim")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_SHOWN = 6
"""Tensors that a message names."""


@dataclass(frozen=True)
class ImportedModel:
    """A model of another toolkit, for one direction, with its weights under our names."""

    architecture: Architecture
    languages: Languages
    decoding: DecodingSettings
    tokenizer: ForeignTokenizer
    weights: dict[str, Tensor]


def import_model(path: Path, languages: Languages | None) -> ImportedModel:
    """Read a folder. One error names every reason why it cannot be used."""
    folder = HuggingFaceFolder(path)
    architecture = read_architecture(folder)
    tokenizer = read_tokenizer(folder, languages)
    weights = read_weights(folder)
    if architecture is not None and weights:
        weights = _with_shared_embedding(weights)
        _check_weights(folder, weights, architecture)
    folder.raise_problems()
    assert architecture is not None
    assert tokenizer is not None
    decoding = _read_decoding(folder)
    return ImportedModel(architecture, tokenizer[1], decoding, tokenizer[0], from_huggingface(weights, architecture))


def read_architecture(folder: HuggingFaceFolder) -> Architecture | None:
    """The architecture that a configuration describes; None with problems in the folder."""
    if folder.family is None:
        return None
    known, config = len(folder.problems), folder.config
    sizes = {ours: folder.integer(theirs, 1, most) for theirs, (ours, most) in _SIZES.items()}
    for name in _SAME_ON_BOTH_SIDES:
        encoder, decoder = (config.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            folder.problems.append(
                f"{CONFIG_FILE}: encoder_{name} is {encoder}, decoder_{name} {decoder}: only equal ones are supported"
            )
    found = config.get("activation_function")
    activation = _ACTIVATIONS.get(found) if isinstance(found, str) else None
    if activation is None:
        folder.problems.append(
            f"{CONFIG_FILE}: activation_function {found!r} is not supported: use a model with {', '.join(_ACTIVATIONS)}"
        )
    for option in ("tie_word_embeddings", "share_encoder_decoder_embeddings"):
        if config.get(option) is False:
            folder.problems.append(f"{CONFIG_FILE}: {option} is false: use a model with one embedding matrix")
    pad_id = folder.integer("pad_token_id", 0, MAX_ROWS)
    if pad_id is None or len(folder.problems) > known:
        return None
    is_marian = folder.family == "marian"
    try:
        return Architecture(
            **sizes,
            dropout=config.get("dropout", 0.1),
            attention_dropout=config.get("attention_dropout", 0.0),
            activation_dropout=config.get("activation_dropout", 0.0),
            norm_position="after" if is_marian else "before",
            activation=activation,
            positions="marian" if is_marian else "sinusoidal",
            first_position=0 if is_marian else pad_id + 1,  # M2M100 numbers positions from its padding id + 1 on.
            scale_embedding=config.get("scale_embedding", _SCALES_BY_DEFAULT[folder.family]),
            output_bias=is_marian,
        )
    except ValidationError as error:
        folder.problems += [f"{CONFIG_FILE}: {_reason(problem)}" for problem in error.errors()]
        return None


def _reason(problem: Mapping[str, Any]) -> str:
    name = ".".join(map(str, problem["loc"]))
    return f"{name} is {problem['input']!r}: {problem['msg']}" if name else str(problem["msg"])


def read_weights(folder: HuggingFaceFolder) -> dict[str, Tensor]:
    """All tensors of the first kind of weight files that a folder has; empty with problems in the folder."""
    for name in (HUGGINGFACE_WEIGHTS_FILE, _PICKLED_FILE):
        if (folder.path / name).is_file():
            return _read_file(folder, name)
        if (folder.path / f"{name}.index.json").is_file():
            return _read_shards(folder, f"{name}.index.json")
    others = [name for name in ("tf_model.h5", "flax_model.msgpack") if (folder.path / name).is_file()]
    remedy = f"convert {others[0]} with transformers" if others else "copy or download the whole folder"
    folder.problems.append(f"{HUGGINGFACE_WEIGHTS_FILE} is missing: {remedy}")
    return {}


def _read_shards(folder: HuggingFaceFolder, index: str) -> dict[str, Tensor]:
    table = folder.read_json(index).get("weight_map")
    names = sorted({str(name) for name in table.values()}) if isinstance(table, dict) else []
    if not names or any(Path(name).name != name for name in names):
        folder.problems.append(f"{index} does not list files of this folder: copy it again")
        return {}
    return {name: tensor for file in names for name, tensor in _read_file(folder, file).items()}


def _read_file(folder: HuggingFaceFolder, name: str) -> dict[str, Tensor]:
    path = folder.path / name
    try:
        if path.suffix == ".safetensors":
            found = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)  # Runs no code from the file.
    except FileNotFoundError:
        folder.problems.append(f"{name} is missing: copy or download the whole folder")
        return {}
    except pickle.UnpicklingError:
        folder.problems.append(
            f"{name} holds more than tensors, and none of its code is run: take the model as {HUGGINGFACE_WEIGHTS_FILE}"
        )
        return {}
    except Exception as error:  # A damaged pickle raises anything, such as IndexError or AssertionError.
        reason = " ".join(str(error).split())[:80]
        folder.problems.append(f"{name} is damaged ({reason}): copy it again")
        return {}
    if found == {}:
        folder.problems.append(f"{name} holds no tensors: copy or download it again")
        return {}
    if isinstance(found, dict) and all(isinstance(tensor, Tensor) for tensor in found.values()):
        return {str(tensor_name): tensor for tensor_name, tensor in found.items()}
    folder.problems.append(f"{name} does not hold tensors by their names: save the model with transformers")
    return {}


def _with_shared_embedding(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of matrices that are tied, a file may hold any one."""
    present = [name for name in (SHARED_EMBEDDING, *TIED_EMBEDDINGS) if name in weights]
    return {**weights, SHARED_EMBEDDING: weights[present[0]]} if present else weights


def _check_weights(folder: HuggingFaceFolder, weights: Mapping[str, Tensor], architecture: Architecture) -> None:
    expected = weight_shapes(architecture)
    missing = [name for name in expected if name not in weights]
    unknown = [name for name in weights if name not in expected and name not in TIED_OR_COMPUTED]
    wrong = [
        f"{name} is {list(weights[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if name in weights and tuple(weights[name].shape) != shape
    ]
    odd = [name for name, tensor in weights.items() if tensor.dtype not in _FLOATS or tensor.layout != torch.strided]
    infinite = find_not_finite({name: weights[name] for name in expected if name in weights and name not in odd})
    belonging = f"take the weights that belong to {CONFIG_FILE}"
    for problem, names, remedy in (
        ("tensors are missing", missing, belonging), ("unknown tensors", unknown, belonging),
        ("tensors of other sizes", wrong, belonging),
        ("tensors are no floating-point numbers, or sparse", odd, belonging),
        ("tensors with NaN or infinity", infinite, "take an earlier checkpoint, or copy it again"),
    ):  # fmt: skip
        if names:
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            folder.problems.append(f"weights: {problem} ({shown}): {remedy}")


def _read_decoding(folder: HuggingFaceFolder) -> DecodingSettings:
    """Our settings, with the beam size that the folder suggests."""
    beam = folder.generation_config.get("num_beams", folder.config.get("num_beams"))
    try:
        return DecodingSettings() if beam is None else DecodingSettings(beam=beam)
    except ValidationError:
        return DecodingSettings()

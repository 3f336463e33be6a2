"""Model folders: weights, architecture, tokenizer and languages. They hold data only, no code.

```
weights.safetensors      the parameters; in a Hugging Face folder model.safetensors, under Hugging Face's names
model.json               architecture, languages, decoding settings
tokenizer.model          SentencePiece, or the tokenizer of an imported model
```

Folders of transformers, without a `model.json`, are read by `huggingface_model`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dragoman.corpus.huggingface_folder import is_huggingface_folder, split_direction
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json
from dragoman.model.architecture import Architecture
from dragoman.model.finite_weights import find_not_finite
from dragoman.model.huggingface_model import import_model
from dragoman.model.huggingface_weights import HUGGINGFACE_WEIGHTS_FILE, from_huggingface
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

WEIGHTS_FILE = "weights.safetensors"
MODEL_FILE = "model.json"
TOKENIZER_FILE = "tokenizer.model"


@dataclass(frozen=True)
class ModelDescription:
    """Everything about a model but its weights."""

    architecture: Architecture
    languages: Languages
    decoding: DecodingSettings
    tokenizer: Tokenizer

    def write(self, folder: Path) -> None:
        content = {
            "architecture": self.architecture.model_dump(),
            "languages": asdict(self.languages),
            "decoding": self.decoding.model_dump(),
        }
        write_json(folder / MODEL_FILE, content)
        (folder / TOKENIZER_FILE).write_bytes(self.tokenizer.model)


@dataclass(frozen=True)
class StoredModel:
    """A model with loaded weights, and its description."""

    model: Transformer
    description: ModelDescription


def read_description(folder: Path) -> ModelDescription:
    """Read the description of a model of ours."""
    content = read_json(folder / MODEL_FILE)
    try:
        return ModelDescription(
            Architecture(**content["architecture"]),
            Languages(**content["languages"]),
            DecodingSettings(**content["decoding"]),
            Tokenizer.load(folder / TOKENIZER_FILE),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DragomanError(
            f"{folder / MODEL_FILE} does not describe a model ({error}): take another checkpoint or copy it again."
        ) from None


def load_model(model: Path, device: torch.device | str = "cpu") -> StoredModel:
    """Read a model folder of ours or of transformers, which may have a direction in front: see `split_direction`."""
    description, weights = read_model(model)
    transformer = Transformer(description.architecture)
    load_weights(transformer, weights, model)
    return StoredModel(transformer.to(device).eval(), description)


def read_model(model: Path, languages: Languages | None = None) -> tuple[ModelDescription, dict[str, Tensor]]:
    """The description of a model, and its weights under our names.

    `languages` are those of a model of transformers that has no direction in front.
    """
    stated, folder = split_direction(model)
    if not (folder / MODEL_FILE).exists() and is_huggingface_folder(folder):
        imported = import_model(folder, stated or languages)
        description = ModelDescription(imported.architecture, imported.languages, imported.decoding, imported.tokenizer)
        return description, imported.weights
    description = read_description(folder)
    path = folder / HUGGINGFACE_WEIGHTS_FILE
    if path.is_file():
        return description, from_huggingface(read_tensors(path), description.architecture)
    return description, read_tensors(folder / WEIGHTS_FILE)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise DragomanError(f"{path} does not exist: the model is incomplete, take another checkpoint.") from None
    except (SafetensorError, OSError) as error:
        raise DragomanError(f"{path} is damaged ({error}): take another checkpoint or copy it again.") from None


def load_weights(model: Transformer, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a model. One error names all that are missing, unknown, of another shape or not finite."""
    problems = find_misfits(weights, model.architecture)
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise DragomanError(
            f"The weights of {path} cannot be used ({shown}): take another checkpoint or copy it again."
        )
    model.load_state_dict(dict(weights))


def find_misfits(weights: Mapping[str, Tensor], architecture: Architecture) -> list[str]:
    """Weights that an architecture lacks, does not know, or has in another shape, and those that are not finite."""
    with torch.device("meta"):  # Without memory.
        own = Transformer(architecture).state_dict()
    problems = [f"{name} is missing" for name in own if name not in weights]
    problems += [f"{name} is unknown" for name in weights if name not in own]
    problems += [
        f"{name} has shape {list(weights[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    return problems + [f"{name} has NaN or infinity" for name in find_not_finite(weights)]

"""Model folders: weights, architecture, tokenizer and languages. They hold data only, no code.

```
weights.safetensors      the parameters; in a Hugging Face folder model.safetensors, under M2M100's names
model.json               architecture, languages, decoding settings
tokenizer.model          SentencePiece
```
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json
from dragoman.model.architecture import Architecture
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


def load_model(folder: Path, device: torch.device | str = "cpu") -> StoredModel:
    """Read a model folder, with weights under our names or M2M100's."""
    description = read_description(folder)
    model = Transformer(description.architecture)
    path = folder / HUGGINGFACE_WEIGHTS_FILE
    if path.is_file():
        weights = from_huggingface(read_tensors(path), description.architecture)
    else:
        path = folder / WEIGHTS_FILE
        weights = read_tensors(path)
    load_weights(model, weights, path)
    return StoredModel(model.to(device).eval(), description)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise DragomanError(f"{path} does not exist: the model is incomplete, take another checkpoint.") from None
    except (SafetensorError, OSError) as error:
        raise DragomanError(f"{path} is damaged ({error}): take another checkpoint or copy it again.") from None


def load_weights(model: Transformer, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a model. One error names all that are missing, unknown or of another shape."""
    own = model.state_dict()
    problems = [f"{name} is missing" for name in own if name not in weights]
    problems += [f"{name} is unknown" for name in weights if name not in own]
    problems += [
        f"{name} has shape {list(weights[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise DragomanError(f"{path} does not fit the model's architecture: {shown}.")
    model.load_state_dict(dict(weights))

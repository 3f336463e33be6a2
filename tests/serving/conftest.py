"""Small exported models, and a client of a server with them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE
from dragoman.exporting.exporter import export
from dragoman.serving.app import make_app
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.translation_service import TranslationService

from ..models import briefly_trained_model, save_model, train_tokenizer
from ..shared_folder import shared_folder


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models, English to German and back."""
    folder = shared_folder(tmp_path_factory, "exports", make_exports)
    return [folder / "en-de", folder / "de-en"]


def make_exports(folder: Path) -> None:
    tokenizer = train_tokenizer(folder)
    model = briefly_trained_model(tokenizer)
    for direction in ("en-de", "de-en"):
        stored = save_model(folder / f"model-{direction}", model, tokenizer, direction, beam=3)
        export(stored, folder / direction, "ctranslate2")


def copy_with_direction(export: Path, folder: Path, direction: str) -> Path:
    """Copy an export as a model for another direction, whatever it writes."""
    copy = Path(shutil.copytree(export, folder / direction))
    description = json.loads((copy / DESCRIPTION_FILE).read_text())
    description["languages"] = dict(zip(("source", "target"), direction.split("-"), strict=True))
    (copy / DESCRIPTION_FILE).write_text(json.dumps(description))
    return copy


def make_service(exports: list[Path], **options: Any) -> TranslationService:
    return TranslationService(exports, threads=1, on_batch=lambda name, sentences: None, **options)


@pytest.fixture
def client(exports: list[Path]) -> Iterator[TestClient]:
    metrics = Metrics()
    service = TranslationService(exports, threads=1, on_batch=metrics.record_batch)
    with TestClient(make_app(service, Limits(), None, metrics), base_url="http://127.0.0.1") as client:
        yield client

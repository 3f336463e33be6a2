"""Forward and back-translation of texts into a corpus: survey of the machines, translation, assembly."""

import contextlib
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dragoman.corpus.huggingface_folder import split_direction
from dragoman.corpus.sources import Languages
from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE as MODEL_DESCRIPTION_FILE
from dragoman.decoding.ctranslate2_translator import is_ctranslate2_folder, override_settings
from dragoman.decoding.length_rules import check_n_best
from dragoman.decoding.model_choice import find_model
from dragoman.errors import DragomanError, DragomanWarning
from dragoman.files import locked, read_json
from dragoman.launch.ssh import Machine, SshClient
from dragoman.progress_callback import Progress
from dragoman.settings import DecodingSettings
from dragoman.synthesis.coordinator import Coordinator, Survey
from dragoman.synthesis.corpus_assembly import CorpusOptions, assemble
from dragoman.synthesis.shard_queue import ShardQueue
from dragoman.synthesis.shard_worker import folder_digest
from dragoman.synthesis.synthesis_folder import SynthesisDescription, SynthesisFolder, check_same
from dragoman.synthesis.text_shards import TextSummary, check_texts, read_shards, summarize_texts
from dragoman.synthesis.translation_job import DeviceKind, TranslationJob
from dragoman.synthesis.worker_connection import EngineFiles, ShardResult

SHARD_LINES: dict[DeviceKind, int] = {"cpu": 2048, "cuda": 16384}
"""Lines of a shard: enough for full batches of similar lengths, few enough that little is lost with a machine."""
_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".model", ".spm"})
_LOCAL = (Machine("localhost"),)


@dataclass(frozen=True)
class SynthesisRequest:
    """The arguments of a synthesis."""

    model: Path
    texts: Sequence[Path]
    out: Path
    options: CorpusOptions = field(default_factory=CorpusOptions)
    decoding: dict[str, Any] = field(default_factory=dict)
    n_best: int = 1
    device: DeviceKind | None = None
    """Kind of devices that translate (default: GPUs if any machine has one)."""
    machines: Sequence[Machine] = _LOCAL
    client: SshClient = field(default_factory=SshClient)
    shard_lines: int | None = None


def synthesize(request: SynthesisRequest, progress: Progress) -> SynthesisDescription:
    """Translate what is not translated yet, and write the corpus. The same request resumes after any interruption."""
    check_texts(request.texts)
    model = find_model(request.model)
    folder = SynthesisFolder(request.out)
    earlier = folder.read()
    if earlier is None:
        folder.check_unused()
    request.out.mkdir(parents=True, exist_ok=True)
    with _only_one(request.out):
        texts = tuple(summarize_texts(request.texts, progress))
        device = request.device or (earlier.job.device if earlier is not None else None)
        survey = Survey(request.machines, request.client) if device is None else None
        try:
            device = device or ("cuda" if survey is not None and any(survey.gpus.values()) else "cpu")
            engine = _engine_folder(model, folder, device, is_new=earlier is None)
            description = _describe(request, model, engine, texts, device)
            if earlier is None:
                folder.write(description)
            else:
                check_same(request.out, description.differences(earlier))
                description = replace(description, shard_lines=earlier.shard_lines)
            folder.shards.open()
            if len(folder.shards.finished()) < description.shards:
                survey = survey or Survey(request.machines, request.client)
                _translate(request, folder, description, survey, engine, progress)
        finally:
            if survey is not None:
                survey.close()
        description = replace(description, corpus=assemble(folder, description, request.options, progress))
        folder.write(description)
    _warn_of_mixture(description)
    return description


def check_device(device: str | None) -> DeviceKind | None:
    if device not in (None, *SHARD_LINES):
        raise DragomanError(f"--device {device} is not known: use {' or '.join(SHARD_LINES)}.")
    return device


def _translate(
    request: SynthesisRequest,
    folder: SynthesisFolder,
    description: SynthesisDescription,
    survey: Survey,
    engine: Path,
    progress: Progress,
) -> None:
    finished = folder.shards.finished()
    queue = ShardQueue(read_shards(request.texts, description.shard_lines, finished))
    view = _ProgressView(description, finished, progress)
    files = EngineFiles(engine, folder_digest(engine))
    Coordinator(survey, description.job, files, queue, folder.shards, view).run()


class _ProgressView:
    """Shows the lines that are translated, and warns of hosts."""

    def __init__(self, description: SynthesisDescription, finished: set[int], progress: Progress) -> None:
        self._description, self._finished, self._progress = description, set(finished), progress
        self._show()

    def host_ready(self, host: str, machine: str) -> None:
        pass

    def host_lost(self, host: str, reason: str) -> None:
        warnings.warn(
            f"{host} was lost ({reason}): its shards go to others, and it is tried again.", DragomanWarning, 2
        )

    def host_left_out(self, host: str, reason: str) -> None:
        warnings.warn(f"{host} is left out: {reason}.", DragomanWarning, stacklevel=2)

    def shard_done(self, host: str, result: ShardResult) -> None:  # noqa: ARG002
        self._finished.add(result.number)
        self._show()

    def _show(self) -> None:
        total = self._description.lines
        self._progress("Translating lines", min(len(self._finished) * self._description.shard_lines, total), total)


@contextlib.contextmanager
def _only_one(out: Path) -> Iterator[None]:
    try:
        with locked(out, wait=False):
            yield
    except BlockingIOError:
        raise DragomanError(f"Another synthesis is writing to {out}: wait for it, or end it.") from None


def _engine_folder(model: Path, folder: SynthesisFolder, device: DeviceKind, *, is_new: bool) -> Path:
    """The model as workers load it. A copy, because a run that goes on replaces its checkpoints."""
    if is_ctranslate2_folder(model):
        return model
    if is_new or not folder.model.exists():
        from dragoman.exporting.exporter import export

        export(model, folder.model, "ctranslate2" if device == "cpu" else "safetensors", overwrite=True)
    return folder.model


def _describe(
    request: SynthesisRequest, model: Path, engine: Path, texts: tuple[TextSummary, ...], device: DeviceKind
) -> SynthesisDescription:
    content = read_json(engine / MODEL_DESCRIPTION_FILE)
    decoding = override_settings(DecodingSettings(**content["decoding"]), request.decoding)
    check_n_best(request.n_best, decoding)
    job = TranslationJob(device, decoding.model_dump(), request.n_best)
    shard_lines = request.shard_lines or SHARD_LINES[device]
    languages = Languages(**content["languages"])
    return SynthesisDescription(str(request.model), weights_digest(model), languages, texts, job, shard_lines)


def weights_digest(model: Path) -> str:
    """Hash of the weights and the tokenizer of a model, with its direction if one is stated."""
    direction, folder = split_direction(model)
    digest = hashlib.sha256((direction.direction if direction else "").encode())
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHT_SUFFIXES:
            digest.update(path.name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _warn_of_mixture(description: SynthesisDescription) -> None:
    machines = description.corpus["machines"]
    if len(machines) > 1:
        warnings.warn(
            f"Different machines translated ({'; '.join(machines)}): they round differently, and other ones may "
            "translate a few lines otherwise.",
            DragomanWarning,
            stacklevel=3,
        )
